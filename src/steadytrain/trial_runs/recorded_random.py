"""Restores the random states of recorded steps when a launched script reaches the same point."""

from __future__ import annotations

from steadytrain.replay.batch_feeding import evaluated_between
from steadytrain.replay.recorded_steps import RecordedStep, RecordedSteps


class RecordedRandom:
    def __init__(self, steps: RecordedSteps) -> None:
        self._steps = steps

    def evaluated_before(self, number: int) -> bool:
        """Whether the recorded run evaluated right before step ``number``."""
        before, here = self._steps.step(number - 1), self._steps.step(number)
        return before is not None and here is not None and evaluated_between(before, here)

    def prepare(self, number: int | None) -> None:
        """Restores the state that the recorded run had before the first model call of step ``number``."""
        step = None if number is None else self._steps.step(number)
        state = step.random(0, "random_before") if step is not None and step.calls else None
        if state is not None:
            state.restore()

    def restore_after(self, step: RecordedStep | None, number: int) -> None:
        """Restores the state after call ``number`` of a step."""
        if step is None or not 0 <= number < len(step.calls):
            return
        after = step.random(number, "random_after")
        if after is not None:
            after.restore()
