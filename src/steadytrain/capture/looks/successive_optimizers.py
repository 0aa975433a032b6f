"""Counts optimizers of one kind that are made one after the other for the same parameters, which nobody else wrote to.

Each of them begins without moments. Tasks, folds and clients give their model other weights in between, or train long.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import VERSION

FOLLOWED_STEPS_MAX = 256
COUNTED_MAX = 8
"""The rows of further ones would say the same."""

PLAIN = (bool, int, float, str, tuple, type(None))


@dataclass(frozen=True)
class _Ended:
    """The last optimizer: its kind and settings, how many steps it made, and the parameters as it left them."""

    kind: tuple[Any, ...]
    steps: int
    parameters: tuple[tuple[weakref.ref[Tensor], int], ...]

    def left(self, parameters: list[Tensor]) -> bool:
        """Whether these are its parameters, and nobody wrote to them since."""
        return len(parameters) == len(self.parameters) and all(
            held() is one and VERSION.of(one) == version
            for one, (held, version) in zip(parameters, self.parameters, strict=True)
        )


class SuccessiveOptimizers:
    """Serves all streams of a run."""

    def __init__(self) -> None:
        self._last: _Ended | None = None
        self._count, self._longest = 1, 0
        self._updated: tuple[int, int, tuple[int, ...]] = (0, 0, ())
        self._dataset = -1

    def updated(self, stream: Stream, dataset: int) -> None:
        """An optimizer of ``stream`` has made an update, one of its first: long trainings are not followed. Its newest
        batch came from a loader of ``dataset``, -1 for none."""
        self._dataset = dataset
        steps = stream.own_steps - stream.renewed
        if steps <= FOLLOWED_STEPS_MAX:
            self._updated = id(stream), steps, tuple(map(VERSION.of, stream.parameters))
        elif self._updated[0] == id(stream):
            self._updated = 0, 0, ()

    def done(self, stream: Stream) -> None:
        """The script has dropped the optimizers of ``stream``."""
        self._end(stream, stream.optimizers)

    def replaced(self, stream: Stream, old: torch.optim.Optimizer | None) -> None:
        """Another optimizer has taken the place of ``old`` in ``stream``."""
        self._end(stream, [old] if old is not None and len(stream.optimizers) == 1 else [])

    def _end(self, stream: Stream, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        key, steps, versions = self._updated
        if len(optimizers) != 1 or key != id(stream) or len(versions) != len(stream.parameters):
            self._last = None
            return
        held = tuple(zip(map(weakref.ref, stream.parameters), versions, strict=True))
        self._last = _Ended(_kind(optimizers[0]), steps, held)

    def rows(self, stream: Stream, dataset: int) -> Iterator[tuple[str, float]]:
        """Before the first update of ``stream``: ``optimizers-in-turn:CLASS`` is how many were made so, the newest
        among them, and ``optimizer-steps:CLASS`` the most steps that one of the others made. ``other-data:CLASS``, 1:
        it takes the place of an optimizer that was fed from another data set."""
        last, self._last = self._last, None
        if stream.renewed and min(dataset, self._dataset) >= 0 and dataset != self._dataset:
            yield f"other-data:{type(stream.optimizers[0]).__name__}", 1.0
        goes_on = last is not None and len(stream.optimizers) == 1 and last.kind == _kind(stream.optimizers[0])
        if last is None or not goes_on or not last.left(list(stream.parameters)):
            self._count, self._longest = 1, 0
            return
        self._count, self._longest = self._count + 1, max(self._longest, last.steps)
        name = type(stream.optimizers[0]).__name__
        settings = stream.optimizers[0].defaults
        if self._count <= COUNTED_MAX and (settings.get("betas") or settings.get("momentum")):
            yield f"optimizers-in-turn:{name}", float(self._count)
            yield f"optimizer-steps:{name}", float(self._longest)


def _kind(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    settings = sorted((key, value) for key, value in optimizer.defaults.items() if isinstance(value, PLAIN))
    return type(optimizer), str(settings)
