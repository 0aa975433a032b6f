"""Gradients are cleared before the step that should apply them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ClearedGradients(ScriptRule):
    """Gradients are cleared between the backward and the step, so the optimizer has nothing to apply.

    Means:
        The script calls `zero_grad` after `backward` and before `step`. Each gradient is missing or zero when the
        optimizer steps: the weights stay as they are, but for weight decay and old momentum.

    Causes:
        - `zero_grad` one line too low
        - a `zero_grad` at the end of a function that computes gradients, and the step behind it

    Next:
        1. Call `optimizer.zero_grad()` before `loss.backward()`, or after `optimizer.step()`.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"{row.place} clears the gradients after the backward and before the step: the optimizer has nothing "
                "to apply",
                looks=row.last,
            )
            for row in script_rows(window, "cleared-gradients")
            if row.last >= self.looks_min
        )[:1]
