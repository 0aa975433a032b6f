"""Whether the learning-rate schedules of a stream are stepped at all while its data loader goes round."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from steadytrain.capture.snapshots.loaded_states import schedulers_of
from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.capture.step.optimizer_streams import Stream


class Passes:
    """Counts how often the largest data set of the loaders was gone through, by the rows of its batches.

    Smaller ones, as a rule for evaluation, may be gone through more often than the one that is trained on.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._largest = 0
        self.of_largest = 0.0

    def fetched(self, dataset: int, batch: Any, rows_in_all: int) -> None:
        """A loader gave ``batch``. A data set without a length (``rows_in_all`` 0) is not counted."""
        first = next((one for one in tensors_in(batch) if one.dim() > 0), None)
        if first is None or rows_in_all <= 0:
            return
        self._rows[dataset] = self._rows.get(dataset, 0) + len(first)
        if rows_in_all >= self._largest:
            self._largest, self.of_largest = rows_in_all, self._rows[dataset] / rows_in_all


class IdleSchedules:
    """The schedules that exist at the first update of ``stream``; later ones are not known."""

    def __init__(self, stream: Stream) -> None:
        scheduled = [one for one in stream.optimizers if any("initial_lr" in group for group in one.param_groups)]
        self._schedules = [weakref.ref(each) for one in scheduled for each in schedulers_of(one)]
        self._rates = _rates(stream)
        self._due = 2.0

    def rows(self, stream: Stream, passes: float) -> Iterator[tuple[str, float]]:
        """``idle-schedule:CLASS``, the passes over the data so far, at the second, fourth, eighth, ... of them.

        A schedule that has counted a step, or a rate that has changed, ends this for good.
        """
        if not self._schedules or passes < self._due:
            return
        self._due = 2.0 * passes
        alive = [schedule for each in self._schedules if (schedule := each()) is not None]
        if not alive or any(getattr(one, "last_epoch", 1) != 0 for one in alive) or _rates(stream) != self._rates:
            self._schedules = []
            return
        yield f"idle-schedule:{type(alive[0]).__name__}", passes


def _rates(stream: Stream) -> list[float | None]:
    """Of each group; None where it has none, as in an update by hand."""
    rates = [group.get("lr") for one in stream.optimizers for group in one.param_groups]
    return [None if rate is None else float(rate) for rate in rates]
