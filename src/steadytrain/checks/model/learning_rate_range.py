"""The highest learning rate that the model tolerates, compared with the planned one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.checks.subject.own_steps import at_peak, few_rows, in_turn, peak_rate, train
from steadytrain.core.plugins import threshold

WARM_STEPS = 20
STEPS_MAX = 120
STEPS_MIN = 40
LOWEST = 1e-7
SMOOTH = 0.8
"""Weight of earlier values in the smoothed loss: about five steps."""


@final
@dataclass(frozen=True)
class LearningRateRange(Check):
    """The planned learning rate is well below the one at which the loss rises.

    Means:
        After some steps at the planned rate, the check raises the learning rate exponentially from 1e-7 over some
        hundred steps. The rate at which the loss is a third above its minimum is too high for this model now. A planned
        peak above a third of that leaves little margin: one unlucky batch is enough. The test is short: it finds rates
        that fail at once, not those that fail after a thousand steps.

    Causes:
        - a rate taken from a smaller model, another optimizer or another batch size
        - no normalisation, or an initialisation with large values
        - a rate in other units: a sum of losses instead of a mean

    Next:
        1. Try a tenth of the rate that the check names as too high.
        2. Warm up over the first hundred steps or more.
        3. Clip gradients, if they are not clipped.
    """

    cost: ClassVar[Cost] = "minutes"
    source: ClassVar[str] = "Smith 2017 (1506.01186); a short-horizon test"

    rise: float = threshold(1.3, "a smoothed loss this many times its minimum is rising")
    room: float = threshold(3.0, "the planned peak should be this many times lower")

    def inspect(self, subject: Subject) -> Outcome:
        peak, batches = peak_rate(subject), few_rows(subject)
        begins = subject.time_left()
        optimizer = at_peak(subject)
        # Start gently, so that a planned rate that is far too high does not ruin the model before the test.
        warm = train(subject, optimizer, in_turn(batches, WARM_STEPS), rates=[0.1 * peak] * WARM_STEPS)
        step_s = (begins - subject.time_left()) / max(len(warm), 1)
        steps = min(STEPS_MAX, int(subject.time_left() / step_s)) if step_s > 0.0 else STEPS_MAX
        if steps < STEPS_MIN:
            return not_run("there was not enough time for the steps of the test")
        highest = max(1.0, 100.0 * peak)
        rates = [LOWEST * (highest / LOWEST) ** (step / (steps - 1)) for step in range(steps)]
        losses: list[float] = []
        fresh = at_peak(subject)
        for begin in range(0, steps, 10):
            if subject.time_left() <= 0.0 and len(losses) < STEPS_MIN:
                return not_run("there was not enough time for the steps of the test")
            part = train(subject, fresh, in_turn(batches, begin + 10)[begin:], rates=rates[begin : begin + 10])
            losses += part
            if len(part) < 10 or not math.isfinite(part[-1]) or part[-1] > 10.0 * max(abs(losses[0]), 1e-6):
                break
        place = self._rises(losses)
        numbers: dict[str, Any] = {
            "planned": peak,
            "losses": losses,
            "rates": rates[: len(losses)],
            "warm_losses": warm,
            "too_high": rates[place] if place is not None else None,
        }
        if place is None:
            reached = rates[len(losses) - 1]
            if reached < peak:
                return not_run(f"there was time to come to {reached:.2g} only", **numbers)
            return passed(f"the loss does not rise up to a rate of {reached:.2g}; planned is {peak:.2g}", **numbers)
        limit = rates[place]
        told = f"the loss rises from a rate of {limit:.2g} on; planned is {peak:.2g}"
        if peak >= limit:
            return failed(told, **numbers)
        if peak > limit / self.room:
            return warned(f"{told}: little room", **numbers)
        return passed(told, **numbers)

    def _rises(self, losses: Sequence[float]) -> int | None:
        """The step from which on the smoothed loss exceeds its minimum by more than the threshold."""
        smooth, lowest = losses[0], losses[0]
        for step, loss in enumerate(losses):
            if not math.isfinite(loss):
                return step
            smooth = SMOOTH * smooth + (1.0 - SMOOTH) * loss
            lowest = min(lowest, smooth)
            if smooth > self.rise * lowest + 1e-3 * abs(losses[0]):
                return step
        return None
