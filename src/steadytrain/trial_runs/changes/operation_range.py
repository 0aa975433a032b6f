"""One operation of the script, limited to what it made in earlier steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.survey.amplified_operations import NAMES
from steadytrain.survey.script_lines import runs_at
from steadytrain.trial_runs.changes import LiveChange, more_than
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class OperationAsBefore(LiveChange):
    """The results of ``operation`` at ``line`` (``FILE:NUMBER: TEXT``) are limited to ``largest``, plus and minus."""

    operation: str
    line: str
    largest: float
    of_functions = True
    nothing = "this line makes nothing larger than it made before"

    def check(self) -> None:
        more_than("largest", self.largest, 0.0)

    def begin(self, process: Launched) -> None:
        process.functions.replace(_spelled(self.operation), self._limited)

    def _limited(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not isinstance(result, Tensor) or not result.is_floating_point() or not result.numel():
            return result
        if not bool((result.detach().abs() > self.largest).any()) or not runs_at(self.line):
            return result
        self.touch()
        return result.clamp(-self.largest, self.largest)


def _spelled(operation: str) -> list[Any]:
    """The functions of torch, of ``torch.special`` and of a tensor with this name, with or without underscores."""
    names = [name for name in NAMES if name.strip("_") == operation]
    return [getattr(place, name) for name in names for place in (torch, torch.special, Tensor) if hasattr(place, name)]
