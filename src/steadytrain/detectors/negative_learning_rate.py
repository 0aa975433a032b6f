"""A learning rate below zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector


@final
@dataclass(frozen=True)
class NegativeLearningRate(Detector):
    """The learning rate fell below zero: each update climbs the loss.

    Means:
        A schedule without a floor ran on beyond its end. From there on the optimizer adds the gradient in place of
        subtracting it, and the loss rises faster with each step. A rate that is negative from the first step on is
        meant, and is not reported.

    Causes:
        - a linear decay by hand, `1 - step / total`, whose total is shorter than the run
        - a schedule of the main part of a training that also runs in a last part
        - a warm-up or a cosine with a wrong sign

    Next:
        1. Limit the factor: `max(0.0, 1 - step / total)`, or stop stepping the schedule at its end.
        2. Go back to the last checkpoint before the rate was negative.
    """

    needs: ClassVar[tuple[str, ...]] = ("learning_rate",)
    spoils_weights: ClassVar[bool] = True
    hasty: ClassVar[bool] = True

    negative_steps: int = threshold(2, "steps in a row: a sum that was rounded may end a schedule at -1e-20")
    rate_share: float = threshold(1e-6, "of the largest rate, below which a negative one is rounding")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rate = window.applied("learning_rate")
        below = rate.values < -self.rate_share * (float(np.abs(rate.values).max()) if len(rate) else 0.0)
        if len(rate) < self.negative_steps or not below[-self.negative_steps :].all() or below.all():
            return ()
        first = int(np.flatnonzero(~below)[-1]) + 1
        since, until, now = int(rate.steps[first]), int(rate.steps[-1]), float(rate.values[-1])
        return (
            Symptom(
                name="negative-learning-rate",
                severity="critical",
                first_step=since,
                last_step=until,
                message=f"the learning rate is negative since step {since}, {now:.3g} at step {until}: each update "
                "climbs the loss",
                signals=("learning_rate",),
                numbers={"rate": now},
            ),
        )
