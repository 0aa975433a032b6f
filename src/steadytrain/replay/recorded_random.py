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

    def start(self, number: int | None, *, goes_on: bool, calls: int) -> None:
        """Restores the state from which the script draws until step ``number``, the first one that is fed.

        Args:
            goes_on: whether the script has run all steps before, so that it draws on from its last call.
            calls: the calls of the model in the script's last step so far; 0 at one without gradients.
        """
        before = self._steps.step(number - 1) if goes_on and number is not None else None
        if not goes_on or (before is not None and not before.calls):
            self.prepare(number)
        elif before is not None and calls == len(before.calls):
            self.restore_after(before, calls - 1)
        # Else nothing is known of that step (the first of a second optimizer): the script's own state goes on.

    def prepare(self, number: int | None) -> None:
        """Restores the state that the recorded run had before the first model call of step ``number``."""
        step = None if number is None else self._steps.step(number)
        state = step.random(0, "random_before") if step is not None and step.calls else None
        if state is not None:
            state.restore()

    def go_on(self, step: RecordedStep | None, number: int, now: int | None, following: int | None) -> None:
        """Restores the state after call ``number`` of step ``now``, or the one before the step that follows it here."""
        as_recorded = following in (None, (now or 0) + 1) or self.evaluated_before(following or 0)
        if now is not None and as_recorded:
            self.restore_after(step, number)
        else:
            self.prepare(following)

    def restore_after(self, step: RecordedStep | None, number: int) -> None:
        """Restores the state after call ``number`` of a step."""
        if step is None or not 0 <= number < len(step.calls):
            return
        after = step.random(number, "random_after")
        if after is not None:
            after.restore()
