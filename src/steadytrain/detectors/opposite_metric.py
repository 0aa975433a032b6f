"""A schedule that waits for a plateau, and is given a metric that goes the other way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class OppositeMetric(ScriptRule):
    """`ReduceLROnPlateau` has the mode `min` and is stepped with an accuracy, or `max` with a loss.

    Means:
        The schedule cuts the rate when its metric has not improved for some calls. Its default mode is `min`: of a
        metric that rises as the model gets better, every improvement counts as none. The rate is cut again and again
        while the model learns, and training freezes. The names in the call say which way the metric goes.

    Causes:
        - `ReduceLROnPlateau(optimizer)` with `scheduler.step(val_acc)`
        - a metric that was exchanged while the mode stayed
        - no fault: a name that says the opposite of what it holds

    Next:
        1. `mode="max"` for a metric that should rise, or step it with the validation loss.
        2. Print the rate beside the metric at each evaluation.
    """

    cut_share: float = threshold(0.999, "share of the first rate below which it has been cut, for a warning")
    calls_min: int = threshold(1, "calls of the schedule before a note")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [row for row in script_rows(window, "metric-against-mode") if len(row.steps) >= self.calls_min]
        return tuple(
            Symptom(
                name="opposite-metric",
                severity="warning" if row.last < self.cut_share else "note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"the mode of ReduceLROnPlateau is that of the opposite metric: it waits for a {row.place} and "
                f"takes improvements for none; the rate is {row.last:.3g} of what it was",
                signals=("script.value",),
                numbers={"share": row.last},
            )
            for row in rows[:1]
        )
