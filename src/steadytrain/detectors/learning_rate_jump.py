"""The learning rate jumped to many times what it had been, and the loss got no better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.corroboration import aligned, rate_jump
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import has_slid, stride_of

BEFORE_ROWS = 16


@final
@dataclass(frozen=True)
class LearningRateJump(Detector):
    """The learning rate jumped to a level it never had, and the loss got no better.

    Means:
        A steady rate became more than twelve times as large from one step to the next, which no usual schedule does,
        and after the jump the loss is not below where it was. It looks at the rate of the first parameter group. If the
        loss falls, the jump is a note.

    Causes:
        - a schedule that was built again, or stepped with the wrong number, for example after a resume
        - a unit that was mixed up: a rate from a configuration that is scaled by the batch size or the world size twice
        - a constant warm-up at a rate far below the one that follows

    Next:
        1. Compare the rate at `first_step` with the plan.
        2. Go back to a checkpoint before `first_step`, and raise the rate over at least 100 steps if it was meant.
    """

    needs: ClassVar[tuple[str, ...]] = ("learning_rate",)
    bursts: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    hasty: ClassVar[bool] = True
    is_act: ClassVar[bool] = True

    after_rows: int = threshold(6, "logged losses after the jump before it is judged")
    after_rows_max: int = threshold(32, "and at most: what comes later has other reasons")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rate = window.applied("learning_rate")
        if has_slid(rate.steps, stride=stride_of(rate.steps)):
            return ()
        row = rate_jump(rate.values)
        if row is None:
            return ()
        first_step, last_step = int(rate.steps[row]), int(rate.steps[-1])
        before, now = float(rate.values[row - 1]), float(rate.values[row])
        losses = aligned(window.applied("loss"), rate.steps)
        earlier, later = losses[max(0, row - BEFORE_ROWS) : row + 1], losses[row + 1 :][: self.after_rows_max]
        earlier, later = earlier[np.isfinite(earlier)], later[np.isfinite(later)]
        if len(later) < self.after_rows or not len(earlier):
            return ()
        level, level_now = median(earlier), median(later)
        return (
            Symptom(
                name="learning-rate-jump",
                severity="warning" if level_now >= level else "note",
                first_step=first_step,
                last_step=last_step,
                message=f"the learning rate jumped from {before:.3g} to {now:.3g} at step {first_step}, and the loss "
                f"went from a median of {level:.4g} to one of {level_now:.4g}",
                signals=("learning_rate", "loss"),
                numbers={"rate_before": before, "rate": now, "loss_before": level, "loss": level_now},
            ),
        )
