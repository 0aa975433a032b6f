"""Gradients are not cleared between two updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class GradientsCarriedOver(ScriptRule):
    """Gradients of earlier updates are still there: each step applies the sum of all batches so far.

    Means:
        The first backward of a step found the gradients that the update before had applied, and no later backward of
        that step found them cleared. What the optimizer applies grows with the steps: it works like a
        momentum that forgets nothing.

    Causes:
        - `optimizer.zero_grad()` is missing (missing-zero-grad), or is called on another optimizer or another model
        - it is called after `backward()` of the next batch only, or in a branch that is not reached
        - accumulation that clears every few batches, but updates at each of them

    Next:
        1. Call `optimizer.zero_grad()` once after each `optimizer.step()`.
        2. With accumulation call both under the same condition.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks in a row that find them: one may be a step that a script repeats on purpose")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "carried-over")
        if not rows:
            return ()
        (row,) = rows
        found = row.steps[row.values > 0.0]
        if len(found) < self.looks_min:
            return ()
        every = len(found) == int((row.steps > row.steps[0]).sum()) or len(found) == len(row.steps)
        often = "every update" if every else f"{len(found)} of {len(row.steps)} updates that were looked at"
        return (
            Symptom(
                name="gradients-carried-over",
                severity="warning",
                first_step=int(found[0]),
                last_step=int(window.steps[-1]),
                message=f"gradients are not cleared: {often} from step {int(found[0])} on still held those of the "
                "updates before",
                signals=("script.value",),
                numbers={"looks": float(len(row.steps)), "carried": float(len(found))},
            ),
        )
