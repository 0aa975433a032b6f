"""Extreme batches that recur: garbage, or rare data that the run should learn from. An experiment shows which.

The first one is skipped. The update of the next one is made on trial, with a bounded gradient, and with a copy of the
state from before it. The loss has to come back within some steps, else the run returns to that copy. The next batch
that is extreme has to have a clearly lower loss than those before, since a run learns from data and not from garbage.
Otherwise all that are like them are skipped from then on.
"""

from __future__ import annotations

import numpy as np

from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.statistics.medians import median

SETTLE_STEPS, SETTLE_OF = 64, 32
"""So many steps after the update the median of so many last losses has to be within the range from before."""

BEFORE_STEPS, RANGE_SHARE = 64, 0.75
"""That range ends at this share of so many losses; with fewer nothing is tried. Of 32 losses that are as before, the
median lies above it less than once in 500 times."""

LEARNED_SHARE, TRIALS_MAX = 0.7, 3
"""The loss of the next extreme batch is below this share of the least of those before, if the run learns from them, and
after so many updates none is extreme any more."""

TRIAL_RATIO = 2.0
"""On trial the gradient is at most so many times as long as the largest usual one: a second moment that is as large as
an extreme gradient makes it would stop the training for long."""

APART_STEPS = 4
"""Extreme steps that are closer than this are one burst, of which nothing is learned between two of its steps."""

ALIKE_SHARE, ALIKE_NORM_RATIO = 0.5, 5.0
"""Where such batches are known to be garbage, two conditions make a step one of them. Its loss is at least this share
of the smallest loss of theirs. Its gradient norm is so many times the largest usual one."""

ON_TRIAL = (
    "it recurs, so its update is made on trial: rare data that a run learns from look so; whether the loss comes back "
    f"shows in {SETTLE_STEPS} steps"
)


class Recurring:
    """Follows the extreme steps of one stream.

    Attributes:
        on_trial: steps whose update was made, of which it is not known yet whether the run learns from them. They say
            nothing of what is usual.
    """

    def __init__(self) -> None:
        self.on_trial: list[int] = []
        self._losses: list[float] = []
        self._last = -APART_STEPS
        self._open: tuple[int, float] | None = None
        self._gives_up = False

    def is_alike(self, loss: float, norm: float, usual: float) -> bool:
        """Whether a step is one of those that are known to be garbage. ``usual``: the largest usual norm."""
        return self._gives_up and loss >= ALIKE_SHARE * min(self._losses) and norm > ALIKE_NORM_RATIO * usual

    def lets_through(self, stream: Stream, measured: Measurement) -> bool:
        """Whether the update of the extreme step at the gate is made in spite of it."""
        step, loss = measured.record.step, measured.record.scalars.get("loss") or 0.0
        is_first, is_near = not self._losses, step - self._last < APART_STEPS
        lower = bool(self._losses) and loss < LEARNED_SHARE * min(self._losses)
        self._last = step
        self._losses.append(loss)
        if lower and 0 < len(self.on_trial) < TRIALS_MAX and not self._gives_up:
            self.on_trial.append(step)
            return True
        if is_first or is_near or self._gives_up:
            return False
        if self.on_trial:
            self._gives_up = True  # nothing was learned of the one on trial
            return False
        high = self._range(stream)
        if high is None:
            return False
        self.on_trial.append(step)
        self._open = step, high
        return True

    def harm(self, stream: Stream, *, acted_at: float) -> tuple[int, str] | None:
        """The step of the update on trial and what it did, if the loss is not back; None if it is, or may be.
        ``acted_at``: the step of the newest rung, which says that something else saw the harm."""
        if self._open is None:
            return None
        step, high = self._open
        if acted_at >= step:
            self._open, self._gives_up = None, True
            return None
        if stream.step < step + SETTLE_STEPS:
            return None
        self._open = None
        if len(self.on_trial) > 1:
            return None  # the run has learned from it
        losses = stream.history.window().applied("loss")
        level = median(losses.values[losses.steps > step][-SETTLE_OF:])
        if level <= high:
            return None
        self._gives_up = True
        return step, (
            f"the update of step {step} was made on trial, and {SETTLE_STEPS} steps later the loss is {level:.4g}, "
            f"above its range from before, up to {high:.4g}"
        )

    def _range(self, stream: Stream) -> float | None:
        losses = stream.history.window().applied("loss")
        before = losses.values[~np.isin(losses.steps, self.on_trial)][-BEFORE_STEPS:]
        return float(np.quantile(before, RANGE_SHARE)) if len(before) == BEFORE_STEPS else None
