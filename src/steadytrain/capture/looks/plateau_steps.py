"""Finds a ``ReduceLROnPlateau`` that is stepped after each batch, with a patience of a few batches.

Its metric is then the loss of one batch, whose noise looks like a plateau: the rate is cut again and again within the
first pass over the data. Asked for are counts of the schedule, the cuts, and a patience that is short beside a pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from torch.optim.lr_scheduler import ReduceLROnPlateau

from steadytrain.capture.looks.plateau_modes import CLASS, mentions
from steadytrain.capture.snapshots.loaded_states import moves
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.living_objects import living

SEARCH_STEP = 8
UPDATES_MIN, CUTS_MIN = 32, 2
PATIENCE_MAX_UPDATES = 50
PASS_SHARE_MAX = 0.1
"""Share of the updates in a pass that the patience must stay below."""


class PlateauSteps:
    """Follows one stream through its first pass over the data."""

    def __init__(self) -> None:
        self._found: weakref.ref[ReduceLROnPlateau] | None = None
        self._rate = 0.0
        self._cuts = 0

    def rows(self, stream: Stream, passes: float) -> Iterator[tuple[str, float]]:
        """``plateau-per-batch:CLASS`` is the number of cuts in the ``passes`` so far, and ``plateau-patience:CLASS``
        the patience. Both are told once. Where the passes are not known nothing is."""
        if stream.own_steps == SEARCH_STEP and mentions(CLASS):
            self._search(stream)
        schedule = self._found() if self._found is not None else None
        if schedule is None:
            return
        if schedule.last_epoch < stream.own_steps - 1 or not 0.0 < passes <= 1.0:
            self._found = None
            return
        rate = float(schedule.optimizer.param_groups[0]["lr"])
        self._cuts += rate < self._rate
        self._rate = rate
        in_a_pass = stream.own_steps / passes
        if self._cuts < CUTS_MIN or stream.own_steps < UPDATES_MIN:
            return
        self._found = None
        if schedule.patience < min(PATIENCE_MAX_UPDATES, PASS_SHARE_MAX * in_a_pass):
            yield f"plateau-per-batch:{type(schedule).__name__}", float(self._cuts)
            yield f"plateau-patience:{type(schedule).__name__}", float(schedule.patience)

    def _search(self, stream: Stream) -> None:
        for one in living(ReduceLROnPlateau):
            if any(moves(one.optimizer, each) for each in stream.optimizers):
                self._found = weakref.ref(one)
                self._rate = float(one.optimizer.param_groups[0]["lr"])
                return
