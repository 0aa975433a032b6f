"""Columns of numbers that a format reads, by row or by block, with bounded memory.

Columns are sparse: a cell that was not logged takes no space. Of a log with more than ``ROWS_MAX`` rows only the newest
are kept (in whole blocks), because thinning would lose the one-step spikes that detectors look for.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from steadytrain.core.model import FloatArray, IntArray

ROWS_MAX = 2_000_000
CELLS_MAX = 24_000_000
"""Maximum number of cells in all columns together, at 16 bytes each while a log is read."""

COLUMNS_MAX = 256
BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class Column:
    """The cells of one column: ``values[i]`` is in row ``rows[i]``, ascending."""

    rows: IntArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, rows: IntArray) -> tuple[FloatArray, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
        """The values at ``rows`` and whether each exists; 0 for missing ones."""
        if not len(self.rows):
            return np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
        if np.array_equal(rows, self.rows):  # nearly always: saves a search
            return self.values, np.ones(len(rows), np.bool_)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        here = self.rows[places] == rows
        return np.where(here, self.values[places], 0.0), here


@dataclass(frozen=True)
class Rows:
    """A log as read, in its own order: ``count`` rows, the non-empty columns, and notes.

    If the log names its runs, ``run_of[i]`` is the position in ``runs`` of row ``i``'s run.
    """

    count: int
    columns: Mapping[str, Column]
    runs: tuple[str, ...] = ()
    run_of: IntArray | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _Block:
    count: int
    columns: dict[str, Column]
    run_of: IntArray | None

    def cells(self) -> int:
        return sum(map(len, self.columns.values()))


@dataclass
class RowsBuilder:
    """Collects rows."""

    runs: dict[str, int] = field(default_factory=dict)
    _blocks: deque[_Block] = field(default_factory=deque)
    _pushed: int = 0
    _kept: int = 0
    _cells: int = 0
    _names: set[str] = field(default_factory=set)
    _names_left_out: set[str] = field(default_factory=set)
    _open: dict[str, tuple[array[int], array[float]]] = field(default_factory=dict)
    _open_runs: array[int] = field(default_factory=lambda: array("q"))
    _open_count: int = 0

    @property
    def seen(self) -> int:
        """Number of all rows so far, including dropped ones."""
        return self._pushed + self._open_count

    def add(self, row: Mapping[str, float], run: str | None = None) -> None:
        """Add one row."""
        for name, value in row.items():
            cells = self._open.get(name)
            if cells is None:
                if not self._is_known(name):
                    continue
                cells = self._open[name] = (array("q"), array("d"))
            cells[0].append(self._open_count)
            cells[1].append(value)
        self._open_runs.append(self.run_number(run) if run is not None else -1)
        self._open_count += 1
        if self._open_count >= BLOCK_ROWS:
            self._close()

    def add_block(self, count: int, columns: Mapping[str, Column], run_of: IntArray | None = None) -> None:
        """Add ``count`` rows at once. The rows of ``columns`` count from 0."""
        self._close()
        self._push(_Block(count, {name: column for name, column in columns.items() if self._is_known(name)}, run_of))

    def run_number(self, run: str) -> int:
        return self.runs.setdefault(run, len(self.runs))

    def build(self, *notes: str) -> Rows:
        """All rows that were kept."""
        self._close()
        names = dict.fromkeys(name for block in self._blocks for name in block.columns)
        starts = np.cumsum([0, *(block.count for block in self._blocks)])
        columns = {
            name: Column(
                np.concatenate([b.columns[name].rows + s for b, s in self._starting(starts) if name in b.columns]),
                np.concatenate([b.columns[name].values for b in self._blocks if name in b.columns]),
            )
            for name in names
        }
        told = list(notes)
        if self.seen > self._kept:
            told.append(f"{self.seen:,} rows are in the log; only the newest {self._kept:,} were read.")
        if self._names_left_out:
            told.append(f"More than {COLUMNS_MAX} columns: {len(self._names_left_out)} of them were left out.")
        named = [block.run_of for block in self._blocks if block.run_of is not None]
        run_of = np.concatenate(named) if self.runs and named else None
        return Rows(self._kept, columns, tuple(self.runs), run_of, tuple(told))

    def _starting(self, starts: IntArray) -> list[tuple[_Block, int]]:
        return [(block, int(start)) for block, start in zip(self._blocks, starts, strict=False)]

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        if len(self._names) >= COLUMNS_MAX:
            if len(self._names_left_out) < COLUMNS_MAX:
                self._names_left_out.add(name)
            return False
        self._names.add(name)
        return True

    def _close(self) -> None:
        if not self._open_count:
            return
        columns = {
            name: Column(np.array(rows, np.int64), np.array(values, np.float64))
            for name, (rows, values) in self._open.items()
        }
        block = _Block(self._open_count, columns, np.array(self._open_runs, np.int64))
        self._open, self._open_runs, self._open_count = {}, array("q"), 0
        self._push(block)

    def _push(self, block: _Block) -> None:
        self._blocks.append(block)
        self._pushed += block.count
        self._kept += block.count
        self._cells += block.cells()
        while len(self._blocks) > 1 and (self._kept > ROWS_MAX or self._cells > CELLS_MAX):
            gone = self._blocks.popleft()
            self._kept -= gone.count
            self._cells -= gone.cells()
