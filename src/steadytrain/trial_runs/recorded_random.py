"""The random states of recorded steps, put in place where a launched script comes to the same point."""

from __future__ import annotations

from steadytrain.replay.batch_feeding import evaluated_between
from steadytrain.replay.recorded_steps import RecordedStep, RecordedSteps


class RecordedRandom:
    def __init__(self, steps: RecordedSteps) -> None:
        self._steps = steps

    def evaluated_before(self, number: int) -> bool:
        """Whether the recorded run evaluated between the step before ``number`` and that step."""
        before, here = self._steps.step(number - 1), self._steps.step(number)
        return before is not None and here is not None and evaluated_between(before, here)

    def prepare(self, number: int | None) -> None:
        """The state in which the recorded run came from its last forward to the first call of step ``number``."""
        step = None if number is None else self._steps.step(number)
        state = step.random(0, "random_before") if step is not None and step.calls else None
        if state is not None:
            state.restore()

    def restore_after(self, step: RecordedStep | None, number: int) -> None:
        """The state after call ``number`` of a step."""
        if step is None or not 0 <= number < len(step.calls):
            return
        after = step.random(number, "random_after")
        if after is not None:
            after.restore()
