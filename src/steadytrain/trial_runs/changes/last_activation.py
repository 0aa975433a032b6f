"""A loss that judges what went into the last activation."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, final

import torch
from torch import Tensor, nn
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

DIFFERENCES = (torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__)
KEPT = 8
"""Calls of activations that are remembered: the last one is among the newest."""

NEWEST = 8
"""Steps whose losses are compared with what the activation allows."""


@final
@dataclass
class LinearOutput(LiveChange):
    """A loss that compares values gets the input of the activation that made its prediction, in place of its output; so
    does a difference to a target outside of the model.

    The prediction is known by its memory, so views of it count, and copies do not.
    """

    nothing = "no activation made the prediction of a loss that compares values"
    _calls: deque[tuple[Tensor, Tensor, Any]] = field(
        default_factory=lambda: deque(maxlen=KEPT), init=False, repr=False
    )
    _losses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=NEWEST), init=False, repr=False)

    def begin(self, process: Launched) -> None:
        def linear(original: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
            found = _before(reversed(self._calls), values)
            if found is None:
                return original(values, *args, **kwargs)
            self.touch()
            loss = original(found[0], *args, **kwargs)
            if process.role == "train" and original is functional.mse_loss and loss.dim() == 0:
                target = args[0] if args else kwargs.get("target")
                self._losses.append((float(loss.detach()), _least(target, ENDS[found[1]])))
            return loss

        process.functions.replace(ENDS, self._kept)
        process.functions.replace(DISTANCES, linear)
        process.functions.replace(DIFFERENCES, self._difference)

    def _difference(self, original: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        """Between a prediction and a target, which has no gradient: a loss by hand."""
        sides = [one, other]
        for at, side in enumerate(sides):
            target = sides[1 - at]
            if isinstance(target, Tensor) and not target.requires_grad and self._calls and not _inside_a_module():
                found = _before([self._calls[-1]], side)
                if found is not None:
                    self.touch()
                    sides[at] = found[0]
        return original(*sides, *args, **kwargs)

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


def _before(calls: Iterable[tuple[Tensor, Tensor, Any]], values: Any) -> tuple[Tensor, Any] | None:
    """What went into the activation whose output ``values`` is, or is a view of; and the activation."""
    if not isinstance(values, Tensor) or values.layout is not torch.strided:
        return None
    place = values.untyped_storage().data_ptr()
    for result, before, activation in calls:
        if result.untyped_storage().data_ptr() == place and result.stride() == before.stride():
            start = before.storage_offset() + values.storage_offset() - result.storage_offset()
            return before.as_strided(values.shape, values.stride(), start), activation
    return None


def _inside_a_module() -> bool:
    """Whether a module computes its output now: a difference there is part of the model, and not of its loss."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "forward" and isinstance(frame.f_locals.get("self"), nn.Module):
            return True
        frame = frame.f_back
    return False
