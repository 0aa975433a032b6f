"""The learning rate decayed to nearly nothing early, and the training goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SpentSchedule(Detector):
    """The learning rate decayed to less than a thousandth of its peak, and training goes on long after.

    Means:
        The schedule is over, and the updates that follow change next to nothing. It is a note if they are two fifths as
        many as those of the decay, and a warning if they are as many. A decay that ends with the run does not show
        this, and neither does one that stops at a floor of a thousandth or more. An `ExponentialLR` that multiplies the
        rate by 0.99 or less in each update is a warning at a hundredth: such a factor is one for a pass over the data.
        A drop in one step is a new phase: nothing is said. zero-learning-rate reports a rate of exactly zero.

    Causes:
        - a schedule in passes over the data (`StepLR`, `ExponentialLR`, a cosine) that is stepped after each batch
        - a schedule that is stepped for each micro-batch, or for each process
        - a length that was computed for a shorter run, or for larger batches

    Next:
        1. Print `scheduler.get_last_lr()` after each pass, and compare it with the plan.
        2. Step the schedule where its length is counted: once per pass, or once per update.
    """

    needs: ClassVar[tuple[str, ...]] = ("learning_rate", "script.value")
    aim: ClassVar[Aim] = "progress"
    hasty: ClassVar[bool] = True

    peak_share: float = threshold(
        0.99e-3, "share of the peak rate below which an update is next to nothing. Floors of a thousandth are common"
    )
    swift_share: float = threshold(
        1e-2, "the same where the script multiplies the rate by a factor of a pass in each update. Chosen"
    )
    spent_steps: int = threshold(16, "steps at least at such a rate")
    decay_share: float = threshold(
        0.4,
        "of the steps that the decay took: as many at least at such a rate. A decay over the whole run ends with it",
    )
    sure_share: float = threshold(
        1.0, "as many for a warning: an exponential decay that is meant to end there would end at a millionth"
    )
    jump_share: float = threshold(0.2, "share of the peak above which the rate fell in one step, as for a new phase")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rate = window.applied("learning_rate")
        if len(rate) < self.spent_steps or not rate.values[-1] > 0.0:
            return ()
        stride = stride_of(window.steps)
        peak = float(rate.values.max())
        swift = next(iter(script_rows(window, "gamma-an-update")), None)
        low = rate.values < (self.peak_share if swift is None else self.swift_share) * peak
        if not low[-1] or not holds_start(window.steps, stride=stride):
            return ()
        first = int(np.flatnonzero(~low)[-1]) + 1
        since, until = int(rate.steps[first]), int(rate.steps[-1])
        now = float(rate.values[-1])
        took, beyond = since - int(rate.steps[0]), until - since
        jumped = rate.values[first - 1] > self.jump_share * peak
        if jumped or beyond < max(self.spent_steps * stride, self.decay_share * took):
            return ()
        bound, by = "thousandth", ""
        if swift is not None:
            bound, by = "hundredth", f", by {swift.place} with a factor of {swift.last:.4g} at every step"
        return (
            Symptom(
                name="spent-schedule",
                severity="warning" if swift is not None or beyond >= self.sure_share * took else "note",
                first_step=since,
                last_step=until,
                message=f"the learning rate decayed from {peak:.3g} below a {bound} of it by step {since}{by}, and "
                f"training went on for {beyond} steps, down to {now:.2g}",
                signals=("learning_rate",),
                numbers={"peak": peak, "rate": now, "steps": float(beyond)},
            ),
        )
