"""The steps of one stream in memory, for the detectors and the bundle: long for scalars, shorter for tensors.

Of the tables that detectors read the newest readings are kept as well. Not here: everything else, which is on disk.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from steadytrain.model import GRADIENT_ABSENT, Reading, Table, Window
from steadytrain.store.segments import SCALARS, StepRecord

STEPS_MAX = 2048
TENSOR_STEPS_MAX = 512
TENSOR_STEPS_MIN = 16
TENSOR_BYTES_MAX = 16 << 20

TABLES_KEPT = ("tensors", "modules")
READINGS_MAX = 64
READINGS_BYTES_MAX = 8 << 20  # of one table; at least two readings are kept


class History:
    """Appends steps into preallocated arrays twice the window's length, so that a window is a slice and no copy."""

    def __init__(self, *, stream: str) -> None:
        self._stream = stream
        self._count = 0
        self._heads = np.zeros((2 * STEPS_MAX, 2), np.float64)
        self._numbers = np.zeros(2 * STEPS_MAX, np.int64)
        self._values = np.zeros((len(SCALARS), 2 * STEPS_MAX), np.float64)
        self._present = np.zeros((len(SCALARS), 2 * STEPS_MAX), np.bool_)
        self._flags = np.zeros((2, 2 * STEPS_MAX), np.bool_)
        self._tensor_names: tuple[str, ...] = ()
        self._norms: np.ndarray[tuple[int, int], np.dtype[np.float32]] = np.zeros((0, 0), np.float32)
        self._tensor_rows = 0
        self._readings: dict[str, deque[tuple[int, float, Reading]]] = {}
        self._tables: dict[str, Table] = {}
        self._resize(())

    def append(self, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        if tensor_names != self._tensor_names:
            self._resize(tensor_names)
        if self._count == 2 * STEPS_MAX:
            self._keep_newest()
        at = self._count
        self._numbers[at] = record.step
        self._heads[at, 0] = record.time
        for position, name in enumerate(SCALARS):
            value = record.scalars.get(name)
            self._present[position, at] = value is not None
            self._values[position, at] = 0.0 if value is None else value
        self._flags[0, at], self._flags[1, at] = record.skipped, record.refused
        self._count += 1
        keep = self._tensor_steps()
        if self._tensor_rows == 2 * keep:
            self._norms[:keep] = self._norms[keep : 2 * keep].copy()
            self._tensor_rows = keep
        self._norms[self._tensor_rows] = record.gradient_norms
        self._tensor_rows += 1

    def read(self, step: int, time: float, reading: Reading) -> None:
        """A reading of a table; those that no detector reads are let go."""
        if reading.table not in TABLES_KEPT:
            return
        most = max(2, min(READINGS_MAX, READINGS_BYTES_MAX // max(1, reading.values.nbytes)))
        held = self._readings.setdefault(reading.table, deque())
        held.append((step, time, reading))
        while len(held) > most:
            held.popleft()
        self._tables.pop(reading.table, None)

    def tables(self) -> dict[str, Table]:
        """The readings that are kept, put together when they are asked for."""
        for name, held in self._readings.items():
            if name not in self._tables:
                self._tables[name] = _table(name, held)
        return dict(self._tables)

    def window(self) -> Window:
        """The last ``STEPS_MAX`` steps with their scalars, without tensors' gradient norms."""
        return self._window(min(self._count, STEPS_MAX))

    def recent(self) -> Window:
        """The last steps with the gradient norm of every tensor, as many as the memory bound allows."""
        rows = min(self._tensor_rows, self._tensor_steps(), self._count)
        window = self._window(rows)
        norms = self._norms[self._tensor_rows - rows : self._tensor_rows]
        return Window(**{**window.__dict__, "tensor_names": self._tensor_names, "gradient_norms": norms})

    @property
    def size_bytes(self) -> int:
        arrays = (self._heads, self._numbers, self._values, self._present, self._flags, self._norms)
        readings = sum(reading.values.nbytes for held in self._readings.values() for _, _, reading in held)
        return sum(array.nbytes for array in arrays) + readings

    def _window(self, rows: int) -> Window:
        cut = slice(self._count - rows, self._count)
        return Window(
            steps=self._numbers[cut],
            time=self._heads[cut, 0],
            signals={name: self._values[position, cut] for position, name in enumerate(SCALARS)},
            present={name: self._present[position, cut] for position, name in enumerate(SCALARS)},
            skipped=self._flags[0, cut],
            refused=self._flags[1, cut],
            stream=self._stream,
        )

    def _tensor_steps(self) -> int:
        per_step = 4 * max(1, len(self._tensor_names))
        return max(TENSOR_STEPS_MIN, min(TENSOR_STEPS_MAX, TENSOR_BYTES_MAX // (2 * per_step)))

    def _resize(self, tensor_names: tuple[str, ...]) -> None:
        """Other tensors than before: keep the rows, by name."""
        column = {name: position for position, name in enumerate(self._tensor_names)}
        old, old_rows = self._norms, min(self._tensor_rows, self._tensor_steps())
        self._tensor_names = tensor_names
        keep = self._tensor_steps()
        rows = min(old_rows, keep)
        self._norms = np.full((2 * keep, len(tensor_names)), GRADIENT_ABSENT, np.float32)
        for position, name in enumerate(tensor_names):
            if name in column:
                self._norms[:rows, position] = old[self._tensor_rows - rows : self._tensor_rows, column[name]]
        self._tensor_rows = rows

    def _keep_newest(self) -> None:
        for array in (self._heads, self._numbers):
            array[:STEPS_MAX] = array[STEPS_MAX:].copy()
        for table in (self._values, self._present, self._flags):
            table[:, :STEPS_MAX] = table[:, STEPS_MAX:].copy()
        self._count = STEPS_MAX


def _table(name: str, held: deque[tuple[int, float, Reading]]) -> Table:
    """Rows and columns are those of the newest reading; what an older one lacks is NaN."""
    newest = held[-1][2]
    values = np.full((len(held), len(newest.rows), len(newest.columns)), np.nan, np.float32)
    for position, (_, _, reading) in enumerate(held):
        if (reading.rows, reading.columns) == (newest.rows, newest.columns):
            values[position] = reading.values
            continue
        rows = {row: at for at, row in enumerate(reading.rows)}
        columns = {column: at for at, column in enumerate(reading.columns)}
        here = [(to, rows[row]) for to, row in enumerate(newest.rows) if row in rows]
        of = [(to, columns[column]) for to, column in enumerate(newest.columns) if column in columns]
        if here and of:
            to_rows, from_rows = zip(*here, strict=True)
            to_columns, from_columns = zip(*of, strict=True)
            values[position][np.ix_(to_rows, to_columns)] = reading.values[np.ix_(from_rows, from_columns)]
    steps = np.array([step for step, _, _ in held], np.int64)
    times = np.array([time for _, time, _ in held], np.float64)
    return Table(name, steps, times, newest.rows, newest.columns, values)
