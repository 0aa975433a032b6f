"""The steps of one stream in memory, for the detectors and the bundle: long for scalars, shorter for tensors.

Of the tables that detectors read, readings are kept as well (``table_history``), and so are reported evaluations. A
training that continues an earlier run (``continues``) begins with the last steps of that (``earlier_run``). Not here:
everything else, which is on disk.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.metric_names import is_of_script
from steadytrain.core.model import GRADIENT_ABSENT, Reading, Series, Window
from steadytrain.detection.table_history import TableHistory
from steadytrain.storage.segments import SCALARS, StepRecord

STEPS_MAX = 2048
TENSOR_STEPS_MAX = 512
TENSOR_STEPS_MIN = 16
TENSOR_BYTES_MAX = 16 << 20

TABLES_KEPT = ("tensors", "modules", "script", "ranks", "machine")
METRICS_MAX = 64
METRIC_VALUES_MAX = 256


class StepHistory:
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
        self._tables: dict[str, TableHistory] = {}
        self.facts: Mapping[str, float] = {}
        self.resumed: tuple[int, ...] = ()
        self._metrics: dict[str, deque[tuple[int, float]]] = {}
        self._resize(())

    def append(self, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        if tensor_names != self._tensor_names:
            self._resize(tensor_names)
        if self._count == 2 * STEPS_MAX:
            self._keep_newest()
        at = self._count
        self._numbers[at] = record.step
        self._heads[at, 0] = record.time
        values = [record.scalars.get(name) for name in SCALARS]
        self._present[:, at] = [value is not None for value in values]
        self._values[:, at] = [0.0 if value is None else value for value in values]
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
        if reading.table in TABLES_KEPT:
            self._tables.setdefault(reading.table, TableHistory(reading.table)).append(step, time, reading)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers that were measured beside training after ``step``. A NaN is kept: it was measured."""
        for name, value in metrics.items():
            if name not in self._metrics and len(self._metrics) >= METRICS_MAX:
                continue
            self._metrics.setdefault(name, deque(maxlen=METRIC_VALUES_MAX)).append((step, value))

    def forget(self, *, after: int) -> None:
        """Drop the steps after step ``after``, into new arrays: windows that were handed out stay as they are."""
        dropped = self._after(after)
        self._tensor_rows = max(0, self._tensor_rows - dropped)
        self._count -= dropped
        self._heads, self._numbers = self._heads.copy(), self._numbers.copy()
        self._values, self._present = self._values.copy(), self._present.copy()
        self._flags, self._norms = self._flags.copy(), self._norms.copy()
        for table in self._tables.values():
            table.forget(after=after)
        for values in self._metrics.values():
            while values and values[-1][0] > after:
                values.pop()

    def window(self, *, until: float = math.inf) -> Window:
        """The last ``STEPS_MAX`` steps up to step ``until``, without tensors' gradient norms."""
        stop = self._count - self._after(until)
        return self._window(max(0, stop - STEPS_MAX), stop)

    def recent(self, *, until: float = math.inf) -> Window:
        """The last steps with the gradient norm of every tensor, as many as the memory bound allows.

        Tables and metrics reach as far back as those of ``window``: readings are far between.
        """
        after = self._after(until)
        rows = max(0, min(self._tensor_rows, self._tensor_steps(), self._count) - after)
        window = self._window(self._count - after - rows, self._count - after)
        norms = self._norms[self._tensor_rows - after - rows : self._tensor_rows - after]
        return replace(window, tensor_names=self._tensor_names, gradient_norms=norms)

    @property
    def size_bytes(self) -> int:
        arrays = (self._heads, self._numbers, self._values, self._present, self._flags, self._norms)
        return sum(array.nbytes for array in arrays) + sum(table.size_bytes for table in self._tables.values())

    def _after(self, until: float) -> int:
        """How many steps in memory are later than ``until``."""
        if not self._count or until >= self._numbers[self._count - 1]:
            return 0
        return self._count - int(np.searchsorted(self._numbers[: self._count], until, side="right"))

    def _window(self, start: int, stop: int) -> Window:
        cut = slice(start, stop)
        since = int(self._numbers[max(0, stop - STEPS_MAX)]) if stop else 0
        until = int(self._numbers[stop - 1]) if stop else -1
        newest = math.inf if stop == self._count else until  # what was read while the run rested is later
        tables = {name: readings.table(since, until) for name, readings in self._tables.items()}
        return Window(
            steps=self._numbers[cut],
            time=self._heads[cut, 0],
            signals={name: self._values[position, cut] for position, name in enumerate(SCALARS)},
            present={name: self._present[position, cut] for position, name in enumerate(SCALARS)},
            skipped=self._flags[0, cut],
            refused=self._flags[1, cut],
            stream=self._stream,
            tables={name: table for name, table in tables.items() if len(table)},
            metrics={
                name: _series(values, *((0, newest) if is_of_script(name) else (since, until)))
                for name, values in self._metrics.items()
            },
            resumed=np.array([step for step in self.resumed if since <= step <= until], np.int64),
            facts=dict(self.facts),
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
        """Into new arrays: windows that were handed out stay as they are."""
        self._heads, self._numbers = _newest(self._heads), _newest(self._numbers)
        self._values, self._present = _newest(self._values.T).T, _newest(self._present.T).T
        self._flags = _newest(self._flags.T).T
        self._count = STEPS_MAX


def _newest(rows: NDArray[Any]) -> NDArray[Any]:
    kept = np.zeros_like(rows)
    kept[:STEPS_MAX] = rows[STEPS_MAX:]
    return kept


def _series(values: deque[tuple[int, float]], since: int, until: float) -> Series:
    kept = [(step, value) for step, value in values if since <= step <= until]
    steps, numbers = zip(*kept, strict=True) if kept else ((), ())
    return Series(np.array(steps, np.int64), np.array(numbers, np.float64))
