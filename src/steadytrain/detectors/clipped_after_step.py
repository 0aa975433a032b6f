"""Gradients are clipped after the update that they were for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ClippedAfterStep(ScriptRule):
    """Gradients become smaller between the update and the call that clears them: a clip that has no effect.

    Means:
        Gradients were compared right after the optimizer's step and at `zero_grad`. Some were smaller there, and none
        larger. The update was made with the gradients as they were before: large ones went through, and the bound that
        the script sets has no effect.

    Causes:
        - `clip_grad_norm_`, or a clamp of `grad`, after `optimizer.step()`

    Next:
        1. Clip between `backward()` and `optimizer.step()`.
        2. Print the norm that `clip_grad_norm_` returns, and choose the bound by it.
    """

    looks_min: int = threshold(2, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [row for row in script_rows(window, "clipped-late") if row.last >= self.looks_min]
        return tuple(
            self.warning(
                window,
                row,
                f"gradients were clipped after the update in {row.last:.0f} of the steps that were looked at, "
                "where it has no effect: clip before optimizer.step()",
                looks=row.last,
            )
            for row in rows[:1]
        )
