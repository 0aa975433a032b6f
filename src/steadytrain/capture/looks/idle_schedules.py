"""Checks whether the script ever steps its learning-rate schedulers while it passes over its data."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from torch.optim.swa_utils import SWALR

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.capture.step.optimizer_streams import Stream

DATASETS_MAX = 64
"""Data sets whose rows are counted, the newest: a script may make one for each pass."""


class Passes:
    """Counts the passes over the largest data set of the loaders, from the rows of its batches. Batches that a loader
    joins to one (the atoms of its molecules) have more rows than samples; then the samples count.

    Smaller data sets usually serve evaluation, and the script may read them more often than the training data.
    """

    def __init__(self) -> None:
        self._rows: OrderedDict[int, int] = OrderedDict()
        self._drawn: dict[int, int] = {}
        self._largest = self._all = 0
        self._of_largest = 0.0

    def fetched(self, dataset: int, batch: Any, rows_in_all: int, drawn: int = 0) -> None:
        """A loader returned ``batch``. ``rows_in_all`` is 0 if the data set has no length; it is not counted then.
        ``drawn`` is the number of samples that the loader last drew for a batch, 0 if that is not known."""
        first = next((one for one in tensors_in(batch) if one.dim() > 0), None)
        if first is None or rows_in_all <= 0:
            return
        if drawn:
            self._drawn[dataset] = drawn
        rows = min(first.size(0), self._drawn.get(dataset, first.size(0)))
        self._rows[dataset] = self._rows.get(dataset, 0) + rows
        self._all += rows
        if rows_in_all >= self._largest:
            self._largest, self._of_largest = rows_in_all, self._rows[dataset] / rows_in_all
        if len(self._rows) > DATASETS_MAX:
            gone, _ = self._rows.popitem(last=False)
            self._drawn.pop(gone, None)

    @property
    def bounds(self) -> tuple[float, float]:
        """The passes over the newest of the largest data sets, and over all data sets as if they were one.

        They differ if the script makes its data set anew for each pass.
        """
        return self._of_largest, self._all / self._largest if self._largest else 0.0

    def since(self, begun: tuple[float, float]) -> tuple[float, float]:
        """Both bounds, counted from the time at which they were ``begun``."""
        least, most = (now - then if now >= then else now for now, then in zip(self.bounds, begun, strict=True))
        return least, most


class IdleSchedules:
    """Follows the ``schedulers`` that exist at the first update of ``stream``, and none that are created later.

    A schedule that is made to begin late in the run (``SWALR``) is not followed.
    """

    def __init__(self, stream: Stream, schedulers: Sequence[weakref.ref[Any]]) -> None:
        self._schedules = [one for one in schedulers if not isinstance(one(), SWALR)]
        self._rates = _rates(stream)
        self._due = 2.0

    def rows(self, stream: Stream, passes: float) -> Iterator[tuple[str, float]]:
        """``idle-schedule:CLASS`` is the number of passes over the data, reported after 2, 4, 8, ... passes.

        Reports end for good when a scheduler has counted a step or a learning rate has changed.
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
    """The learning rate of each parameter group; None if a group has none, as in a manual update."""
    rates = [group.get("lr") for one in stream.optimizers for group in one.param_groups]
    return [None if rate is None else float(rate) for rate in rates]
