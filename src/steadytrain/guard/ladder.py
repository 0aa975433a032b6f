"""Which rung of its ladder a run is on: pure bookkeeping of steps, without torch."""

from __future__ import annotations

from collections import deque

from steadytrain.guard.policy import ROLLBACK_WINDOW, SKIP, Policy, Rung

SPENT = "the ladder for {symptom} is spent"

YOUNG_STEPS = 16
"""Trouble that began so early is not of the data: the first rung is left out."""


class Ladder:
    """The episode of trouble that a run is in, if any. ``index`` is the rung, -1 for none."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.index = -1
        self.since = 0
        """The step after which the newest rung holds."""

        self.onset = 0
        """The first step of the trouble, by the symptoms so far."""

        self.skips = 0
        self.is_first = False
        """Whether the newest rung is the first one of the episode."""

        self._calm_since = 0
        self._worked = -1
        self._taken_back: int | None = None
        self._patience = 1
        self._rollbacks: deque[int] = deque()

    @property
    def holds(self) -> bool:
        """Whether an intervention of this episode holds."""
        return self.index >= 0

    @property
    def cool_down(self) -> int:
        """Steps without trouble that end the episode: more after one that came back when its rung was taken back."""
        return self._policy.budget.cool_down * self._patience

    def may_skip(self, symptom: str) -> bool:
        """Whether another update may be skipped for it."""
        return SKIP in self._policy.ladder(symptom) and self.skips < self._policy.budget.skips

    def take_skip(self) -> bool:
        """Whether the budget has another skip. Counts it."""
        self.skips += 1
        return self.skips <= self._policy.budget.skips

    def skipped(self, step: int) -> None:
        """The update of ``step`` is skipped."""
        self.skips += 1
        self._calm_since = step

    def climb(self, symptom: str, *, onset: int, step: int, young: bool = True) -> Rung | None:
        """The rung for trouble that began at ``onset`` and is seen after ``step``; None if the ladder is spent.
        ``young``: an onset in the first steps means that the run was never right."""
        rungs = [rung for rung in self._policy.ladder(symptom) if rung != SKIP]
        if not self.holds and self._came_back(step):
            self.index, self._patience = self._worked - 1, min(8, 2 * self._patience)
            self.onset = onset
        self.onset = onset if not self.holds else min(self.onset, onset)
        self.is_first = not self.holds
        self.index += 1
        if self.index == 0 and young and onset <= YOUNG_STEPS and len(rungs) > 1:
            self.index = 1  # it was never right, so another batch does not help
        if self.index >= len(rungs) or ("roll-back" in rungs[self.index] and not self.may_roll_back(step)):
            return None
        self.since = self._calm_since = step
        self._taken_back = None
        return rungs[self.index]

    def trouble(self, step: int) -> None:
        """There is trouble at ``step`` for which nothing more is done yet."""
        self._calm_since = max(self._calm_since, step)

    def is_calm(self, step: int) -> bool:
        """Whether the cool-down has passed, so that the interventions are to be taken back. Ends the episode."""
        if not self.holds or step - self._calm_since < self.cool_down:
            return False
        self._worked, self.index, self._taken_back = self.index, -1, step
        return True

    def ends(self, step: int) -> None:
        """The trouble is none that a rung helps against."""
        self.index, self._taken_back, self._calm_since = -1, None, step

    def _came_back(self, step: int) -> bool:
        return self._taken_back is not None and step - self._taken_back <= self.cool_down

    def may_roll_back(self, step: int) -> bool:
        """Whether the budget has another roll-back. Counts it."""
        while self._rollbacks and self._rollbacks[0] < step - ROLLBACK_WINDOW:
            self._rollbacks.popleft()
        if len(self._rollbacks) >= self._policy.budget.rollbacks:
            return False
        self._rollbacks.append(step)
        return True
