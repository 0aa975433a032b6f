"""Codes for missing values, filled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import map_tensors
from steadytrain.survey.missing_codes import filled
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.function_stand_ins import DISTANCES
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class FillCodes(LiveChange):
    """Codes for missing values become the median of the others in inputs of the model. In targets of squared and
    absolute errors, also by a difference, they become what the model puts out, so that they count for nothing.
    """

    nothing = "no value is repeated far beyond all others"
    _known: set[float] = field(default_factory=set, init=False, repr=False)

    def begin(self, process: Launched) -> None:
        def compared(original: Any, values: Any, target: Any = None, *args: Any, **kwargs: Any) -> Any:
            return original(values, self._filled(target, values), *args, **kwargs)

        def apart(original: Any, one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(one, Tensor) and isinstance(other, Tensor) and one.requires_grad != other.requires_grad:
                one, other = self._filled(one, other), self._filled(other, one)
            return original(one, other, *args, **kwargs)

        process.functions.replace(DISTANCES, compared)
        process.functions.replace((torch.sub, Tensor.sub, Tensor.__sub__), apart)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        touched = self.touched
        given = map_tensors((tuple(args), dict(kwargs)), self._filled)
        return (given[0], given[1]) if self.touched > touched else None

    def _filled(self, value: Any, by: Any = None) -> Any:
        """``value`` without codes, if it is not computed by the model."""
        if not isinstance(value, Tensor) or value.requires_grad or not value.is_floating_point():
            return value
        other = filled(value, self._known, by if isinstance(by, Tensor) else None)
        if other is not value:
            self.touch()
        return other
