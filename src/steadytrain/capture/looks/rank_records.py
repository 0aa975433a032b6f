"""The newest records of one rank, read from its folder while it trains: steps, gradient norms and digests.

Only what is new is read, and a bounded number of steps is kept. Not here: the comparison of ranks.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.looks.replica_digests import PROBE_TABLE, TABLE
from steadytrain.core.model import Table
from steadytrain.storage.step_tail import StepTail
from steadytrain.storage.table_tail import TableTail

STEPS_MAX = 256
READINGS_MAX = 64
SIGNALS = ("loss", "gradient_norm", "learning_rate", "loss_scale")

Value: TypeAlias = tuple[float, ...]


class RankRecords:
    """The records of the stream ``stream`` in the run folder ``folder`` of one rank."""

    def __init__(self, folder: Path, stream: str) -> None:
        self.steps: dict[int, dict[str, float]] = {}
        """By step the signals of ``SIGNALS`` that were recorded."""

        self.gradients: dict[int, Readings] = {}
        """By step the gradient norm of each tensor."""

        self.digests: dict[int, Readings] = {}
        """By step the digest of each row of the table ``replica``."""

        self.probes: dict[int, Readings] = {}
        """By step the digest of the smallest parameter."""

        tables = folder / "tables" / stream
        self._steps = StepTail(folder / "steps" / stream)
        self._gradients = TableTail(tables / "gradients", readings_max=READINGS_MAX)
        self._digests = TableTail(tables / TABLE, readings_max=READINGS_MAX)
        self._probes = TableTail(tables / PROBE_TABLE, readings_max=READINGS_MAX)

    def read(self) -> None:
        """Read what is new.

        Raises:
            UsageError: a file is damaged or of another version.
        """
        for window in self._steps.read():
            for at in range(max(0, len(window) - STEPS_MAX), len(window)):
                self.steps[int(window.steps[at])] = {
                    name: float(window.signals[name][at])
                    for name in SIGNALS
                    if name in window.signals and window.present[name][at]
                }
        _add(self.gradients, self._gradients.read())
        _add(self.digests, self._digests.read())
        _add(self.probes, self._probes.read())
        for kept in (self.gradients, self.digests, self.probes):
            _shorten(kept, READINGS_MAX)
        _shorten(self.steps, STEPS_MAX)


class Readings:
    """One reading of a table: ``values`` of shape (rows, columns), float32, NaN where not measured."""

    def __init__(self, rows: tuple[str, ...], values: NDArray[np.float32]) -> None:
        self.rows = rows
        self.values = values

    def value(self, row: str) -> Value | None:
        """The values of a row; None if it was not measured."""
        if row not in self.rows:
            return None
        values = self.values[self.rows.index(row)]
        return None if np.isnan(values).all() else tuple(values.tolist())

    def without(self, rows: Container[str]) -> Readings:
        """The other rows."""
        kept = [at for at, row in enumerate(self.rows) if row not in rows]
        return Readings(tuple(self.rows[at] for at in kept), self.values[kept])


def _add(kept: dict[int, Readings], table: Table | None) -> None:
    if table is not None:
        for at, step in enumerate(table.steps.tolist()):
            kept[step] = Readings(table.rows, table.values[at])


def _shorten(kept: dict[int, Any], count: int) -> None:
    for step in sorted(kept)[:-count]:
        del kept[step]
