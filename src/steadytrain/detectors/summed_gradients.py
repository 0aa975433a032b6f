"""Gradients of several micro-batches are summed, and not averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SummedGradients(ScriptRule):
    """Each update applies the sum of the gradients of several backward passes of one loss.

    Means:
        Several backward calls of one line precede each update, each after a forward of its own. The graph shows no
        division of the loss, and the gradients were not changed before the update. It is always a note, because the
        learning rate may have been chosen for the sum. Plain SGD takes steps that are as many times larger; Adam and
        clipping hide most of it.

    Causes:
        - accumulation without `loss / steps`
        - no fault: a learning rate that was chosen for the sum, or losses of several parts that belong together

    Next:
        1. Divide each loss by the number of micro-batches, or sum over all tokens and divide by their total.
        2. Compare with one backward over the whole batch: the gradients have to be equal.
    """

    looks_min: int = threshold(2, "looks that find it with the same number of backward passes")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        steps = {row.place: row for row in script_rows(window, "summed-steps")}
        for row in script_rows(window, "summed-backwards"):
            same = row.steps[row.values == row.last]
            if len(same) < self.looks_min:
                continue
            larger = f"; the step of SGD is {row.last:.0f} times larger" if row.place in steps else ""
            return (
                Symptom(
                    name="summed-gradients",
                    severity="note",
                    first_step=int(same[0]),
                    last_step=int(window.steps[-1]),
                    message=f"the gradients of {row.last:.0f} backward passes of {row.place} are summed, not averaged"
                    f"{larger}",
                    signals=("script.value",),
                    numbers={"backwards": row.last},
                ),
            )
        return ()
