"""Whether the entropy of a policy is raised or lowered by the loss.

The gradient of the loss by the entropy says so, whatever the script computes in between. Only entropies of
``torch.distributions`` are seen; one that a script computes itself is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from steadytrain.survey.script_lines import line_of, script_frame

STEPS_MIN = 3
VARIED = 1e-3
"""Gradients by the log-probabilities of one call differ by this much of the largest: they carry advantages. A
likelihood weighs all of them alike."""


class PolicyEntropy:
    """Reads gradients by hooks on what ``entropy`` and ``log_prob`` return, while ``is_active``."""

    def __init__(self, is_active: Callable[[], bool]) -> None:
        self._is_active = is_active
        self._line = ""
        self._by_entropy: list[float] = []
        self._sums: list[float] = []
        self._acts = False

    def watch(self) -> None:
        """Follows every distribution class that torch has by now."""
        for kind in _kinds(torch.distributions.Distribution):
            for name, read in (("entropy", self._entropy), ("log_prob", self._log_prob)):
                if name in vars(kind):
                    setattr(kind, name, _followed(vars(kind)[name], read))

    def step_ended(self) -> None:
        """The gate of a surveyed step: the backward is over."""
        if self._by_entropy:
            self._sums.append(sum(self._by_entropy))
        self._by_entropy = []

    @property
    def found(self) -> dict[str, Any] | None:
        """``{line, steps, lowered}`` for a loss with a policy gradient and an entropy: in how many of the steps the
        loss falls with the entropy."""
        if not self._acts or len(self._sums) < STEPS_MIN:
            return None
        return {"line": self._line, "steps": len(self._sums), "lowered": sum(one > 0 for one in self._sums)}

    def _entropy(self, value: Tensor) -> None:
        frame = script_frame()
        self._line = self._line or (line_of(frame) if frame is not None else "")
        value.register_hook(lambda gradient: self._by_entropy.append(float(gradient.sum())))  # type: ignore[no-untyped-call]

    def _log_prob(self, value: Tensor) -> None:
        value.register_hook(self._weights)  # type: ignore[no-untyped-call]

    def _weights(self, gradient: Tensor) -> None:
        if gradient.numel() > 1:
            spread = float(gradient.max() - gradient.min())
            self._acts = self._acts or spread > VARIED * float(gradient.abs().max())

    @property
    def active(self) -> bool:
        return self._is_active()


def _kinds(kind: type) -> Iterator[type]:
    subclasses: list[type] = kind.__subclasses__()
    for one in subclasses:
        yield one
        yield from _kinds(one)


def _followed(original: Callable[..., Any], read: Callable[[Tensor], None]) -> Callable[..., Any]:
    owner: PolicyEntropy = read.__self__  # type: ignore[attr-defined]

    def followed(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if owner.active and isinstance(result, Tensor) and result.requires_grad:
            read(result)
        return result

    return followed
