"""Batch norms in training mode that never learn their running statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, script_rows


@final
@dataclass(frozen=True)
class FrozenRunningStatistics(ScriptRule):
    """The running mean and variance of batch norms are still 0 and 1, or mostly so, though the model trains.

    Means:
        A batch norm in training mode normalises with the statistics of the batch, and in evaluation mode with the
        running ones. If these never move, training looks normal and evaluation is wrong. It is a warning at a momentum
        of exactly 0, where they cannot move. At another momentum it is a note: the script may keep them elsewhere. When
        the script ends, it is a warning if statistics that began as 0 and 1 are still these by half or more, because
        their momentum is too small for the run.

    Causes:
        - `momentum=0.0`, or torch's momentum (the share of the new batch) taken for that of other libraries
        - a momentum of 0.001 or less, meant for fine-tuning, in a run of some hundred steps from scratch
        - the statistics are reset, or the buffers of another copy are loaded, in each step
        - a forward with copies of the buffers (`functional_call`, a wrapped or replicated model)
        - no fault: evaluation uses the statistics of its own batches

    Next:
        1. Set `momentum=0.1`, the default; None takes the mean of all batches.
        2. Print `running_mean` of one batch norm before and after a step.
        3. Compare the loss of one batch in training mode and in evaluation mode.
    """

    steps_min: int = threshold(16, "steps in training mode after which statistics have moved at any usual momentum")

    share_min: float = threshold(0.5, "share of the first statistics at the end. Chosen")
    end_steps: int = threshold(192, "steps of a run that is long enough for statistics to move")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        slow = [one for one in script_rows(window, "first-statistics") if one.last >= self.share_min]
        if slow and window.steps[-1] >= self.end_steps:
            return (self._slow(window, slow),)
        rows = [one for one in script_rows(window, "new-statistics") if one.steps[-1] >= self.steps_min]
        if not rows:
            return ()
        stuck = [one for one in rows if one.last == 0.0]
        names = tuple(one.place for one in stuck or rows)
        which = f"{names[0]} has" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more batch norms have"
        why = " because their momentum is 0" if stuck else ""
        return (
            Symptom(
                name="frozen-running-statistics",
                severity="warning" if stuck else "note",
                first_step=int(rows[0].steps[0]),
                last_step=int(window.steps[-1]),
                message=f"{which} running mean 0 and variance 1 after {int(rows[0].steps[-1])} steps in training mode"
                f"{why.replace('their', 'its') if len(names) == 1 else why}",
                signals=("script.value",),
                tensors=names,
                numbers={"batch_norms": float(len(names)), "momentum": rows[0].last},
            ),
        )

    def _slow(self, window: Window, rows: Sequence[ScriptRow]) -> Symptom:
        names = tuple(one.place for one in rows)
        which = f"of {names[0]}" + (f" and {len(names) - 1} more batch norms" if len(names) > 1 else "")
        return Symptom(
            name="frozen-running-statistics",
            severity="warning",
            first_step=int(rows[0].steps[0]),
            last_step=int(window.steps[-1]),
            message=f"the running statistics {which} are still {rows[0].last:.0%} the mean 0 and the variance 1 that "
            f"they began with, after {int(window.steps[-1]):,} steps: their momentum is too small for this run, and "
            "evaluation uses them",
            signals=("script.value",),
            tensors=names,
            numbers={"batch_norms": float(len(names)), "share": rows[0].last},
        )
