"""Finds the recorded batch that a data loader returns next when recorded steps are fed in another order.

A loader may prefetch: the batch of a step was then fetched in an earlier step. The distance is counted from the run's
first step, so that the batches of a step are those that it used, not those that it fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.replay.recorded_steps import RecordedStep, RecordedSteps

AHEAD_MAX = 64
"""A loader that seems further ahead ran an evaluation before the first step."""

BACK_STEPS_MAX = 64


@dataclass(frozen=True)
class Batch:
    """One batch of a data set on the tape. ``value`` is ``MISSING`` if it was not kept whole."""

    step: int
    value: Any


class Batches:
    """The batches of recorded steps by data set."""

    def __init__(self, steps: RecordedSteps, near: int) -> None:
        self._steps = steps
        self._first = steps.first_fetched(near)
        here = steps.step(near)
        self._each = {dataset: len(_fetches(here, dataset)) for dataset in self.datasets_of(here)} if here else {}

    @property
    def datasets(self) -> list[int]:
        return sorted(self._each)

    @staticmethod
    def datasets_of(step: RecordedStep) -> set[int]:
        return {fetch["dataset"] for fetch in step.document["fetches"]}

    def each(self, dataset: int) -> int:
        """The number of batches that a step uses."""
        return self._each.get(dataset, 0)

    def ahead(self, dataset: int) -> int:
        """The number of batches that the loader has returned before any step used them."""
        ahead = self._first.get(dataset, 0) - self.each(dataset)
        return ahead if 0 < ahead <= AHEAD_MAX else 0

    def used_by(self, number: int, dataset: int) -> list[Batch]:
        """The batches that the recorded step used, in order."""
        step = self._steps.step(number)
        if step is None:
            return []
        own = _fetches(step, dataset)
        ahead = self.ahead(dataset)
        found = [_batch(step, fetch) for fetch in own]
        back = number
        while ahead and len(found) < len(own) + ahead and number - back < BACK_STEPS_MAX:
            back -= 1
            before = self._steps.step(back)
            if before is None:
                found = [Batch(back, MISSING)] * (len(own) + ahead - len(found)) + found
                break
            found = [_batch(before, fetch) for fetch in _fetches(before, dataset)] + found
        stop = len(found) - ahead
        return found[stop - len(own) : stop]

    def queue(self, numbers: Sequence[int | None], dataset: int) -> list[Batch]:
        """The batches that these steps use in sequence. Batches of the script's own steps are ``MISSING``."""
        queue: list[Batch] = []
        for number in numbers:
            queue += [Batch(0, MISSING)] * self.each(dataset) if number is None else self.used_by(number, dataset)
        return queue


def _fetches(step: RecordedStep | None, dataset: int) -> list[dict[str, Any]]:
    return [fetch for fetch in step.document["fetches"] if fetch["dataset"] == dataset] if step else []


def _batch(step: RecordedStep, fetch: dict[str, Any]) -> Batch:
    if fetch["not_kept"] or fetch["changed_after_use"]:
        return Batch(step.document["step"], MISSING)
    return Batch(step.document["step"], step.value(fetch["batch"]))
