"""The tables of a stream as a report needs them, with notes on those that cannot be read.

The names of tables and columns are those on disk (``docs/signals.md``). This module does not know what measures them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.model import GRADIENT_ABSENT, TABLES, IntArray, Series, Table
from steadytrain.report.layer_labels import WHOLE_MODEL
from steadytrain.report.wording import clean
from steadytrain.storage.columnar import is_available
from steadytrain.storage.numbered_files import PARQUET
from steadytrain.storage.run_folder import Run
from steadytrain.storage.tables import read_readable


@dataclass(frozen=True)
class Cells:
    """One column of a table: ``values`` has shape ``(readings, rows)``, NaN if not measured, ``inf`` if not finite."""

    rows: tuple[str, ...]
    steps: IntArray
    values: NDArray[np.float32]

    def series(self, row: int) -> Series:
        """The values of a row, at the readings that have one."""
        values = self.values[:, row].astype(np.float64)
        here = ~np.isnan(values)
        return Series(self.steps[here], values[here])


@dataclass(frozen=True)
class Readings:
    """The non-empty tables of a stream, and notes on what could not be read."""

    tables: Mapping[str, Table]
    notes: tuple[str, ...]

    def rows(self, table: str) -> tuple[str, ...]:
        """The rows of a table. The model itself appears as :data:`WHOLE_MODEL`."""
        return tuple(row or WHOLE_MODEL for row in self.tables[table].rows) if table in self.tables else ()

    def cells(self, table: str, column: str, *, bad: tuple[str, ...] = ()) -> Cells | None:
        """A column, None if nothing was measured. It is ``inf`` also where a column of ``bad`` counts something."""
        found = self.tables.get(table)
        if found is None or column not in found.columns:
            return None
        values = found.values[:, :, found.columns.index(column)].copy()
        if table == "gradients":
            # In this table a NaN is a measured value, and a special mark means absent.
            absent = values == GRADIENT_ABSENT
            values[~np.isfinite(values)] = np.inf
            values[absent] = np.nan
        for name in bad:
            if name in found.columns:
                values[found.values[:, :, found.columns.index(name)] > 0] = np.inf
        if np.isnan(values).all():
            return None
        return Cells(self.rows(table), found.steps, values)


def read(run: Run, stream: str, names: Collection[str] = tuple(TABLES)) -> Readings:
    """Read the tables ``names`` of a stream that exist and that this machine can read."""
    tables, notes = {}, []
    for name in run.tables(stream):
        if name not in names:
            continue
        folder = run.path / "tables" / stream / name
        try:
            table = read_readable(folder)
        except UsageError as error:
            notes.append(clean(f"The table {name} was not read: {error}"))
            continue
        if not is_available() and any(folder.glob(f"*{PARQUET}")):
            notes.append(f"Older steps of the table {name} are Parquet and not shown: {install('query')}")
        if len(table):
            tables[name] = table
    return Readings(tables, tuple(notes))
