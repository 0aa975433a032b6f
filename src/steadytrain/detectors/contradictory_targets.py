"""The same input comes with different targets."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.benign_changes import has_moving_targets
from steadytrain.statistics.script_rows import ScriptRow, last_value, script_rows


@final
@dataclass(frozen=True)
class ContradictoryTargets(ScriptRule):
    """Rows with the same input have different targets: an input of another row was put in their place.

    Means:
        Two samples of many numbers each do not come out equal by chance. If most rows share their input with a row of
        another target, the targets cannot be learned from the inputs: the loss stops at what a guess costs, or the
        model learns the targets of the few rows whose input is their own.

    Causes:
        - features that are cached by a key which several samples share: a number within a file, a name without its
          folder
        - one buffer that each row is written into, and that all rows of the batch then refer to
        - an index into the inputs that wraps around or is rounded, while that of the targets is not
        - tables that were joined on a column whose values repeat
        - no fault: samples that several people labelled, and disagree on

    Next:
        1. Take two rows with the same input, and print where each came from.
        2. Count them before training: `len(np.unique(inputs, axis=0))` against `len(inputs)`.
        3. Switch the cache off for one pass, and compare the loss.
    """

    alarm_share: float = threshold(0.5, "share of the rows whose input came with another target, for a warning")
    told_share: float = threshold(0.1, "the same for a note: labels of several people disagree")
    looks_min: int = threshold(2, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if has_moving_targets(window):
            return ()
        for row in script_rows(window, "other-target"):
            above = row.values >= self.told_share
            if above.sum() < self.looks_min or not above[-1]:
                continue
            share = float(row.last)
            inputs, rows = (
                last_value(window, measure, row.place) or nan for measure in ("different-inputs", "compared-inputs")
            )
            report = self.warning if share >= self.alarm_share else self.note
            return (
                report(
                    window,
                    ScriptRow(row.place, row.steps[above], row.values[above]),
                    f"{100 * share:.0f}% of the rows that the loss of {row.place} was computed for have an "
                    f"input that came with another target, too: {inputs:.0f} different inputs in {rows:.0f} rows",
                    share=share,
                    inputs=inputs,
                    rows=rows,
                ),
            )
        return ()
