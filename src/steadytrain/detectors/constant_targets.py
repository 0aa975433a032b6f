"""All targets of a regression are one and the same number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, script_rows


@final
@dataclass(frozen=True)
class ConstantTargets(ScriptRule):
    """All targets of a regression are the same number, in every step that was read.

    Means:
        A squared, absolute or Huber distance compares outputs of a layer with targets without a gradient, and all
        elements of these were equal, and equal to those of the looks before. The model learns a constant, and its loss
        looks very good. It is a note, because an adversarial loss may have constant targets, and so may returns that
        are zero at first.

    Causes:
        - targets that were normalised over an axis of one element: all are zero
        - an integer division, or a cast to integers, of targets between 0 and 1
        - a column that was filled with a default value
        - no fault: real or fake in an adversarial loss; rewards that come seldom

    Next:
        1. Print the targets of a batch with their mean and standard deviation.
        2. Normalise over the samples (`dim=0`).
    """

    looks_min: int = threshold(4, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="constant-targets",
                severity="note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"all targets of the loss of {row.place} are {row.last:.4g} in {len(row.steps)} looks",
                signals=("script.value",),
                numbers={"target": row.last, "looks": float(len(row.steps))},
            )
            for row in script_rows(window, "constant-target")
            if self._is_one(row)
        )[:1]

    def _is_one(self, row: ScriptRow) -> bool:
        return len(row.steps) >= self.looks_min and bool((row.values == row.last).all())
