"""Gradients are clipped after the update that they were for, or before the backward that makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

PLACES = (
    ("clipped-late", "after the update", "before optimizer.step()"),
    ("clipped-early", "before the backward", "between backward() and the update"),
)


@final
@dataclass(frozen=True)
class ClippedAfterStep(ScriptRule):
    """Gradients are clipped after the update, or before the backward: a clip that has no effect.

    Means:
        Gradients were compared right after the optimizer's step and at `zero_grad`. Some were smaller there, and none
        larger. Or every `clip_grad_norm_` of the step found no gradients, and the update had some. The update was made
        with the gradients as they were: large ones went through, and the bound that the script sets has no effect.

    Causes:
        - `clip_grad_norm_`, or a clamp of `grad`, after `optimizer.step()`
        - `clip_grad_norm_` between `zero_grad()` and `backward()`

    Next:
        1. Clip between `backward()` and `optimizer.step()`.
        2. Print the norm that `clip_grad_norm_` returns, and choose the bound by it.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [
            (row, when, instead)
            for measure, when, instead in PLACES
            for row in script_rows(window, measure)
            if row.last >= self.looks_min
        ]
        return tuple(
            self.warning(
                window,
                row,
                f"gradients were clipped {when} in {row.last:.0f} of the steps that were looked at, "
                f"where it has no effect: clip {instead}",
                looks=row.last,
            )
            for row, when, instead in found[:1]
        )
