"""Follows the steps of a stream while they are written: each call reads only what is new, in blocks of bounded size.

A reader stops at a record that is incomplete or does not match its CRC, and tries it again at the next call: its writer
may not be done. Retention may replace the file between two calls; steps that were read before are then left out by
their times. Not here: the readings of tables (``table_tail.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Window
from steadytrain.core.own_errors import own
from steadytrain.storage.numbered_files import Part, list_parts
from steadytrain.storage.record_checksums import whole_records
from steadytrain.storage.segments import SUFFIXES, read_schema, scalars_of_rows, schema_dtype

BLOCK_BYTES = 4 << 20


class StepTail:
    """The steps of the stream in ``folder`` that no earlier call has returned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._path: Path | None = None
        self._schema: dict[str, Any] = {}
        self._offset = 0
        self._newest_time = -np.inf
        self.damaged: Path | None = None
        """The file with a record that does not match its CRC and is not the last: nothing behind it is read."""

    def read(self) -> Iterator[Window]:
        """The new steps without tensors, oldest first, in blocks.

        Raises:
            UsageError: the schema or the records cannot be read, or are of a newer format.
        """
        for part in list_parts(self._folder, SUFFIXES):
            if part.last < self._number:
                continue
            try:
                seen_in_part = self._open(part)
                yield from self._rest(part.path, again=seen_in_part)
            except FileNotFoundError as error:
                if part in list_parts(self._folder, SUFFIXES):
                    raise UsageError(f"{error.filename}: missing; the run folder is damaged") from None
                return  # replaced since it was listed: the next call lists it again
            except own(OSError) as error:
                raise UsageError(f"{part.path}: the steps cannot be read ({error.strerror})") from None

    def _open(self, part: Part) -> bool:
        """Make ``part`` the one in progress. True if a part that it replaced was read before."""
        if part.path == self._path:
            return False
        schema = read_schema(part.schema)
        replaced = part.first <= self._number
        self._schema, self._path, self._offset, self._number = schema, part.path, 0, part.last
        return replaced

    def _rest(self, path: Path, *, again: bool) -> Iterator[Window]:
        dtype = schema_dtype(self._schema)
        count = max(1, BLOCK_BYTES // dtype.itemsize)
        with open_regular(path) as file:
            file.seek(self._offset)
            while True:
                data = file.read(count * dtype.itemsize)
                rows = np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)
                good = rows[: whole_records(rows)]
                self._offset += good.nbytes
                fresh = good[good["time"] > self._newest_time] if again else good
                if len(fresh):
                    self._newest_time = max(self._newest_time, float(fresh["time"][-1]))
                    yield scalars_of_rows(fresh, self._schema)
                if len(rows) - len(good) > 1:
                    self.damaged = path
                if len(good) < count:
                    return
