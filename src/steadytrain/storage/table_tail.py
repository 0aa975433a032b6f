"""Follows a table while it is written: each call reads the newest readings that no earlier call has returned.

What does not fit into ``READ_BYTES_MAX`` a call is passed over, the oldest first: a live view needs the newest values.
Only raw parts are read. The part in progress is always raw, and so is the last one of a run that ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Table
from steadytrain.core.own_errors import own
from steadytrain.storage.numbered_files import PARQUET, list_parts
from steadytrain.storage.tables import SUFFIXES, RawPart, Schema, read_schema, record_dtype

READ_BYTES_MAX = 4 << 20


class TableTail:
    """The newest readings of the table in ``folder``, at most ``readings_max`` a call."""

    def __init__(self, folder: Path, *, readings_max: int) -> None:
        self._folder = folder
        self._readings_max = readings_max
        self._path: Path | None = None
        self._schema = Schema("", "", (), ())
        self._offset = 0

    def read(self) -> Table | None:
        """The new readings, oldest first. None if there are none.

        Raises:
            UsageError: the table cannot be read, or is of a newer format.
        """
        parts = [part for part in list_parts(self._folder, SUFFIXES) if part.path.suffix != PARQUET]
        if not parts:
            return None
        newest = parts[-1]
        try:
            if newest.path != self._path:
                self._schema = read_schema(newest.schema)
                self._path, self._offset = newest.path, 0
            return self._new(newest.path)
        except FileNotFoundError:
            return None  # replaced since it was listed: the next call lists it again
        except own(OSError) as error:
            raise UsageError(f"{newest.path}: the readings cannot be read ({error.strerror})") from None

    def _new(self, path: Path) -> Table | None:
        dtype = record_dtype(len(self._schema.rows), len(self._schema.columns))
        with open_regular(path) as file:
            there = file.seek(0, 2) // dtype.itemsize
            room = max(1, min(self._readings_max, READ_BYTES_MAX // dtype.itemsize))
            first = max(self._offset // dtype.itemsize, there - room)
            if there <= first:
                return None
            file.seek(first * dtype.itemsize)
            data = file.read((there - first) * dtype.itemsize)
        rows: NDArray[Any] = np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)
        whole = RawPart(self._schema, rows).whole()
        self._offset = (first + len(whole.records)) * dtype.itemsize
        if not len(whole.records):
            return None
        values = whole.block(0, len(self._schema.rows))
        return Table(self._schema.table, whole.steps, whole.time, self._schema.rows, self._schema.columns, values)
