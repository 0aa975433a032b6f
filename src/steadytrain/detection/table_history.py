"""The readings of one table in memory: the newest all, the older ones some steps apart, within a bound of bytes.

Near a symptom a table is read at every step. Were the newest simply kept, 64 such steps would push out the thousands
before them, which slow faults are judged against. Not here: what is measured (``measurement_schedule``), and the disk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Reading, Table

NEWEST_MAX = 64
APART_MAX = 64
APART_STEPS = 16
"""Detectors of slow faults read one reading in this many steps."""

BYTES_MAX = 16 << 20
READINGS_MIN = 4


class TableHistory:
    """Appends into a preallocated array; when it is full, readings are thinned into a new one.

    A table that was handed out stays as it is.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: tuple[str, ...] = ()
        self._columns: tuple[str, ...] = ()
        self._count = 0
        self._steps = np.zeros(0, np.int64)
        self._time = np.zeros(0, np.float64)
        self._values: NDArray[np.float32] = np.zeros((0, 0, 0), np.float32)

    @property
    def size_bytes(self) -> int:
        """Memory of what is kept, room for more included."""
        return self._values.nbytes

    def append(self, step: int, time: float, reading: Reading) -> None:
        """One more reading; its rows and columns are from now on those of the table."""
        if (reading.rows, reading.columns) != (self._rows, self._columns):
            self._rename(reading)
        if self._count == len(self._steps):
            self._thin()
        at = self._count
        self._steps[at], self._time[at], self._values[at] = step, time, reading.values
        self._count += 1

    def forget(self, *, after: int) -> None:
        """Drop the readings after step ``after``, into new arrays."""
        kept = slice(0, int(np.searchsorted(self._steps[: self._count], after, side="right")))
        self._allocate(self._steps[kept], self._time[kept], self._values[kept])

    def table(self, since: int, until: int) -> Table:
        """The readings of these steps, both ends included, without a copy."""
        cut = slice(*np.searchsorted(self._steps[: self._count], [since, until + 1]).tolist())
        return Table(self._name, self._steps[cut], self._time[cut], self._rows, self._columns, self._values[cut])

    def _room(self) -> int:
        fits = BYTES_MAX // max(1, 4 * len(self._rows) * len(self._columns))
        return max(READINGS_MIN, min(2 * (NEWEST_MAX + APART_MAX), fits))

    def _thin(self) -> None:
        """Keep half of what there is room for: the newest, and before them one in each stretch of 16 steps."""
        half = self._room() // 2
        older = np.arange(max(0, self._count - half // 2))
        stretch = self._steps[older] // APART_STEPS
        apart = older[np.diff(stretch, prepend=-1) != 0][-(half - half // 2) :]
        kept = np.concatenate([apart, np.arange(len(older), self._count)])
        self._allocate(self._steps[kept], self._time[kept], self._values[kept])

    def _rename(self, reading: Reading) -> None:
        """Other rows or columns than before: keep what is of the same name, NaN elsewhere."""
        rows = [(to, self._rows.index(name)) for to, name in enumerate(reading.rows) if name in self._rows]
        columns = [(to, self._columns.index(name)) for to, name in enumerate(reading.columns) if name in self._columns]
        self._rows, self._columns = reading.rows, reading.columns
        count = min(self._count, self._room() // 2)
        values = np.full((count, len(reading.rows), len(reading.columns)), np.nan, np.float32)
        if count and rows and columns:
            to_rows, from_rows = zip(*rows, strict=True)
            to_columns, from_columns = zip(*columns, strict=True)
            old = self._values[self._count - count : self._count]
            values[:, np.array(to_rows)[:, None], to_columns] = old[:, np.array(from_rows)[:, None], from_columns]
        newest = slice(self._count - count, self._count)
        self._allocate(self._steps[newest], self._time[newest], values)

    def _allocate(self, steps: NDArray[np.int64], time: NDArray[np.float64], values: NDArray[np.float32]) -> None:
        room, self._count = self._room(), len(steps)
        self._steps, self._time = np.zeros(room, np.int64), np.zeros(room, np.float64)
        rows, columns = values.shape[1:]
        # A column is contiguous in memory: detectors read one of forty at a time.
        self._values = np.zeros((columns, room, rows), np.float32).transpose(1, 2, 0)
        self._steps[: self._count], self._time[: self._count] = steps, time
        self._values[: self._count] = values
