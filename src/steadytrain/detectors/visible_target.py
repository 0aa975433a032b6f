"""The target of a regression stands among its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class VisibleTarget(ScriptRule):
    """Each target of a squared error stands in its input, at one and the same place.

    Means:
        In each look all targets of the batch equal the input of their row at one place, as they are or scaled alike.
        The model only has to copy them: the loss goes to zero and says nothing about rows whose answer is unknown. It
        is a warning where the place is the last one of a series or table (the window reaches one step too far, or the
        label is the last column), and a note elsewhere: a task can be made so.

    Causes:
        - windows `s[i : i + n]` with the target `s[i + n - 1]`
        - the column of the target is among the features
        - a task that asks to pick one input (no fault)

    Next:
        1. Print one row beside its target.
        2. Take `s[i + n]` as the target, or drop the column from the inputs.
    """

    looks_min: int = threshold(4, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [
            Symptom(
                name="visible-target",
                severity="warning" if measure == "target-in-last-input" else "note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"the target of the loss of {row.place} is among the inputs: each equals place "
                f"{row.last:.0f} of its row (counted from 0), as it is or scaled",
                signals=("script.value",),
                numbers={"place": row.last},
            )
            for measure in ("target-in-last-input", "target-in-input")
            for row in script_rows(window, measure)
            if len(row.steps) >= self.looks_min and bool((row.values == row.last).all())
        ]
        return tuple(found[:1])
