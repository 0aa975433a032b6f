"""A loss that judges what went into the last activation."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.experiments.paired_runs import REACHABLE, REACHED
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.function_stand_ins import DISTANCES
from steadytrain.trial_runs.launched_script import Launched

ENDS: dict[Any, tuple[float, float]] = {
    **dict.fromkeys((functional.relu, torch.relu, Tensor.relu, functional.softplus), (0.0, math.inf)),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, Tensor.sigmoid), (0.0, 1.0)),
    **dict.fromkeys((functional.tanh, torch.tanh, Tensor.tanh), (-1.0, 1.0)),
}
"""Activations, and the least and the largest value that they give."""

KEPT = 8
"""Calls of activations that are remembered: the last one is among the newest."""

NEWEST = 8
"""Steps whose losses are compared with what the activation allows."""


@final
@dataclass
class LinearOutput(LiveChange):
    """A loss that compares values gets the input of the activation that made its prediction, in place of its output.

    The prediction is known by its memory, so views of it count, and copies do not.
    """

    nothing = "no activation made the prediction of a loss that compares values"
    _calls: deque[tuple[Tensor, Tensor, Any]] = field(
        default_factory=lambda: deque(maxlen=KEPT), init=False, repr=False
    )
    _losses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=NEWEST), init=False, repr=False)

    def begin(self, process: Launched) -> None:
        def linear(original: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
            for result, before, activation in reversed(self._calls):
                if isinstance(values, Tensor) and _same_memory(result, values):
                    self.touch()
                    loss = original(before.reshape(values.shape), *args, **kwargs)
                    if process.role == "train" and original is functional.mse_loss and loss.dim() == 0:
                        target = args[0] if args else kwargs.get("target")
                        self._losses.append((float(loss.detach()), _least(target, ENDS[activation])))
                    return loss
            return original(values, *args, **kwargs)

        process.functions.replace(ENDS, self._kept)
        process.functions.replace(DISTANCES, linear)

    def _kept(self, original: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        before = values.clone() if kwargs.get("inplace") or True in args else values
        result = original(values, *args, **kwargs)
        self._calls.append((result, before, original))
        return result

    def updated(self, process: Launched) -> None:
        self._calls.clear()

    def measured(self) -> dict[str, float]:
        """Of the newest steps the mean squared error, and the least one that predictions of the activation come to."""
        if not self._losses:
            return {}
        reached, least = (math.fsum(values) / len(self._losses) for values in zip(*self._losses, strict=True))
        return {REACHED: reached, REACHABLE: least}


@torch.no_grad()
def _least(target: Any, ends: tuple[float, float]) -> float:
    if not isinstance(target, Tensor):
        return 0.0
    return float((target - target.clamp(*ends)).float().square().mean())


def _same_memory(one: Tensor, other: Tensor) -> bool:
    """Whether ``other`` is ``one``, or a view of all of it in the same order."""
    return (
        one.numel() == other.numel()
        and one.data_ptr() == other.data_ptr()
        and one.is_contiguous()
        and other.is_contiguous()
    )
