"""The recorded batches that loaders return during a schedule, in request order.

A prefetching loader requests batches of later steps. So each data set has one queue, filled once for all entries, and a
count of the batches returned so far.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.experiments.specs import Entry
from steadytrain.replay.recorded_steps import RecordedSteps
from steadytrain.trial_runs.batch_order import Batch, Batches


class FedBatches:
    """Queues of recorded batches by data set.

    Args:
        steps: the recorded steps.
        begin: the step of the starting snapshot; None for the start of the script.
        own_steps: the number of steps that the script computes itself before.
    """

    def __init__(self, steps: RecordedSteps, *, begin: int | None, own_steps: int) -> None:
        self._steps = steps
        self._begin = begin
        self._own_steps = own_steps
        self._batches: Batches | None = None
        self._queues: dict[int, deque[Batch]] = {}
        self._given: dict[int, int] = {}

    def count(self, dataset: int) -> None:
        """Counts one batch from the script's own loader."""
        self._given[dataset] = self._given.get(dataset, 0) + 1

    def is_fed(self, dataset: int) -> bool:
        """Whether recorded steps use batches of the data set."""
        return self._batches is not None and self._batches.each(dataset) > 0

    def is_of_own_step(self, dataset: int) -> bool:
        """Whether the next batch still belongs to the script's own steps, which may use several batches each."""
        return self._given.get(dataset, 0) < self._used_before(dataset)

    def next(self, dataset: int, *, keep_last: bool) -> Batch | None:
        """The next recorded batch; None if the queue is empty. ``keep_last`` repeats the last one."""
        queue = self._queues.get(dataset)
        if not queue:
            return None
        batch = queue.popleft()
        if keep_last and not queue:
            queue.append(batch)
        return batch

    def read_ahead(self, dataset: int) -> Any:
        """A prefetched batch during the script's only own step: one of the first batches after the snapshot."""
        if self._begin is None:
            return MISSING
        self._batches = self._batches or Batches(self._steps, self._begin + 1)
        each, ahead = self._batches.each(dataset), self._batches.ahead(dataset)
        number = self._given.get(dataset, 0) + 1
        if not 0 < number - each <= ahead:
            return MISSING
        queue = self._batches.queue(range(self._begin + 1, self._begin + 1 + ahead), dataset)
        batch = queue[number - each - 1].value if len(queue) >= number - each else MISSING
        if batch is not MISSING:
            self._given[dataset] = number
        return batch

    def fill(self, schedule: Sequence[Entry], *, copies: bool) -> int:
        """Queues the batches of all following entries. With ``copies`` a probe has its own process and queue.

        Returns the number of loop turns that use up the prefetched batches.
        """
        numbers = [entry.step for entry in schedule if not (entry.role == "probe" and copies)]
        near = next((number for number in numbers if number is not None), None)
        near = near if near is not None else next((e.step for e in schedule if e.step is not None), None)
        if near is None or not self._steps.step(near):
            return 0
        self._batches = Batches(self._steps, near)
        in_order = self._begin is not None and numbers[:1] == [self._begin + 1]
        rounds = 0
        for dataset in self._batches.datasets:
            queue = deque(self._batches.queue(numbers, dataset))
            given = self._given_ahead(dataset)
            if in_order:
                for _ in range(min(given, len(queue))):
                    queue.popleft()
            elif given and self._begin is not None:
                rounds = max(rounds, math.ceil(given / self._batches.each(dataset)))
            self._queues[dataset] = queue
        return rounds

    def fill_for_probe(self, step: int, *, is_first: bool) -> int:
        """Queues only the batches of one step. Returns the same as :meth:`fill`.

        Args:
            is_first: whether nothing was trained on before.
        """
        rounds = int(is_first and self.draws_first())
        for dataset in self._batches.datasets if self._batches is not None else ():
            assert self._batches is not None
            self._queues[dataset] = deque(self._batches.used_by(step, dataset))
            each, ahead = self._batches.each(dataset), self._batches.ahead(dataset)
            if ahead and each:  # prefetched batches pass through the loop first, and their updates are refused
                rounds = max(rounds, math.ceil(ahead / each))
        return rounds

    def draws_first(self) -> bool:
        """Whether the script's first turn can have no other data than its own: its set-up draws random numbers before,
        and no loader is fed."""
        return self._begin is None and not (self._batches is not None and self._batches.datasets)

    def _used_before(self, dataset: int) -> int:
        """The number of batches that the script's own steps use."""
        return self._own_steps * self._batches.each(dataset) if self._batches is not None else 0

    def _given_ahead(self, dataset: int) -> int:
        """How many batches of later steps a prefetching loader has returned by now, or will before the jump."""
        assert self._batches is not None
        ahead = self._batches.ahead(dataset)
        if self._own_steps != 1:
            return ahead
        return min(ahead, max(0, self._given.get(dataset, 0) - self._used_before(dataset)))
