"""Operations on integers whose results do not fit their type, in 64 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.survey.script_lines import runs_at
from steadytrain.survey.wrapped_integers import NAMES, WRITES, exact, wrapped
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class WiderIntegers(LiveChange):
    """Results at ``lines`` (``FILE:NUMBER: TEXT``) that do not fit their type are 64-bit integers. What is written in
    place keeps its type, and stops at its limits."""

    lines: list[str]
    of_functions = True
    nothing = "no integer of these lines leaves its type"

    def begin(self, process: Launched) -> None:
        for name in sorted(NAMES):
            functions = [getattr(place, name) for place in (torch, Tensor) if hasattr(place, name)]
            process.functions.replace(functions, self._of(name))

    def _of(self, name: str) -> Any:
        def widened(original: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                wide = exact(name, args, kwargs)
            result = original(*args, **kwargs)
            if wide is None or wrapped(wide, result) is None or not any(map(runs_at, self.lines)):
                return result
            self.touch()
            if name not in WRITES:
                return wide.long()
            limits = torch.iinfo(result.dtype)
            return result.copy_(wide.clamp(limits.min, limits.max))

        return widened
