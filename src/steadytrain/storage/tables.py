"""Tables of readings: append-only files of fixed-size records, with a JSON schema beside each.

A record is one reading of all rows at one step: a CRC-32, step number, wall-clock time and ``rows x columns`` float32.
Each record is written with one ``write`` call on an unbuffered file, so a killed process loses at most the reading in
flight. A reader stops at the first record that is incomplete or does not match its CRC.

A segment's rows and columns never change; others start a new segment. Retention thins and merges closed segments
(``numbered_files.py``), as Parquet (``columnar.py``) if pyarrow is installed. The readers here read both. Not here: the
scalar signals of a step (``segments.py``), and how long data is kept (``thinning.py``).
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.bounded_files import read_bytes
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.model import GRADIENT_ABSENT, FloatArray, IntArray, Reading, Series, Table
from steadytrain.core.own_errors import own
from steadytrain.storage.columnar import Cells, ColumnarPart, Positions, checked_names, is_available, open_columnar
from steadytrain.storage.documents import as_json
from steadytrain.storage.numbered_files import PARQUET, Part, map_records, next_number, read_parts
from steadytrain.storage.own_file import OwnFile

TABLE_VERSION = 1
SUFFIXES = (PARQUET, ".rows")
RECORDS_PER_SEGMENT_MAX = 100_000
SEGMENT_BYTES_MAX = 2 << 20
"""A segment closes with the record that reaches this size. Only closed segments are thinned, so this bounds the data
that waits.
"""

SCHEMA_SHARE_MAX = 1 / 16
"""A segment stays open until its schema takes less than this share of it: the names of 10,000 tensors take half a
megabyte.
"""

RECORD_BYTES_MAX = 256 << 20
SCHEMA_BYTES_MAX = 64 << 20
TABLE_BYTES_MAX = 8 << 30
"""Memory limit for a whole table. If rows come and go, a table can be far larger than its files."""

_CRC_BYTES = 4
_HEAD = [("crc", "<u4"), ("pad", "<u4"), ("step", "<i8"), ("time", "<f8")]


class TableWriter:
    """Appends readings to ``folder / name``, where ``folder`` belongs to a stream: ``<run>/tables/<stream>``.

    A reading with other rows or columns starts a new segment, as does a full segment. Raises ``OSError`` if the disk
    does not take a whole record; the caller handles it. Creates nothing on disk before the first reading.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._stream = folder.name
        self._name = name
        self._rows: tuple[str, ...] = ()
        self._columns: tuple[str, ...] = ()
        self._record: NDArray[Any] = np.zeros(1, record_dtype(0, 0))
        self._bytes = memoryview(b"")
        self._full_bytes = SEGMENT_BYTES_MAX
        self._file: OwnFile | None = None
        self._count = 0

    def append(self, step: int, time: float, reading: Reading) -> None:
        """Write one reading with one ``write``."""
        if not self._fits(reading):
            self._start_segment(reading.rows, reading.columns)
        assert self._file is not None
        record = self._record[0]
        record["step"], record["time"], record["values"] = step, time, reading.values
        record["crc"] = zlib.crc32(self._bytes[_CRC_BYTES:])
        size = len(self._bytes)
        written = self._file.write(self._bytes)
        if written != size:
            self._take_back(size)
            raise OSError(f"the disk took {written} of {size} bytes of step {step} of the table {self._name}")
        self._count += 1

    def close(self) -> None:
        """End the segment. The next reading starts another."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _fits(self, reading: Reading) -> bool:
        return (
            self._file is not None
            and self._count < RECORDS_PER_SEGMENT_MAX
            and self._count * len(self._bytes) < self._full_bytes
            and (reading.rows is self._rows or reading.rows == self._rows)
            and reading.columns == self._columns
        )

    def _take_back(self, size: int) -> None:
        """Cut off a torn record and start a new segment. If the cut fails too, only the torn end is lost."""
        assert self._file is not None
        try:
            self._file.truncate(self._count * size)
        finally:
            self.close()

    def _start_segment(self, rows: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.close()
        record = np.zeros(1, record_dtype(len(rows), len(columns)))
        self._folder.mkdir(parents=True, exist_ok=True)
        number = next_number(self._folder, SUFFIXES)
        schema = schema_text(Schema(self._stream, self._name, rows, columns))
        (self._folder / f"{number:06d}.json").write_text(schema, encoding="utf-8")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = OwnFile(self._folder / f"{number:06d}.rows", flags)
        self._rows, self._columns = rows, columns
        self._record, self._bytes = record, record.view(np.uint8).data
        self._full_bytes = max(SEGMENT_BYTES_MAX, int(len(schema) / SCHEMA_SHARE_MAX))
        self._count = 0


@dataclass(frozen=True)
class Schema:
    """What the records of a segment hold."""

    stream: str
    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class RawPart:
    """A memory-mapped segment of records, not yet read."""

    schema: Schema
    records: NDArray[Any]

    @property
    def rows(self) -> tuple[str, ...]:
        return self.schema.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self.schema.columns

    @property
    def steps(self) -> IntArray:
        return self.records["step"].astype(np.int64)

    @property
    def time(self) -> FloatArray:
        return self.records["time"].astype(np.float64)

    def block(self, start: int, stop: int, at: Positions = slice(None)) -> NDArray[np.float32]:
        """The values of rows ``start`` to ``stop`` in the readings ``at``, shape (readings, rows, columns)."""
        return np.asarray(self.records["values"][at, start:stop], np.float32)

    def series(self, row: int, column: int) -> tuple[IntArray, NDArray[np.float32]]:
        """Steps and values of one cell."""
        return self.steps, self.records["values"][:, row, column].astype(np.float32)

    def whole(self) -> RawPart:
        """The leading records that match their CRC, which covers the rest of the record."""
        size = self.records.dtype.itemsize
        data = self.records.view(np.uint8).data
        for index, expected in enumerate(self.records["crc"].tolist()):
            if zlib.crc32(data[index * size + _CRC_BYTES : (index + 1) * size]) != expected:
                return RawPart(self.schema, self.records[:index])
        return self

    def ends_whole(self) -> RawPart:
        """All records if the last one matches its CRC, else :meth:`whole`: a crash damages only the end."""
        return self if len(RawPart(self.schema, self.records[-1:]).whole().records) else self.whole()


def read_table(folder: Path) -> Table:
    """All complete readings of a table, with the rows and columns of all its parts side by side.

    Cells that a part lacks are NaN, or ``GRADIENT_ABSENT`` in the table ``gradients``, where NaN is a measured value.

    Raises:
        UsageError: a part cannot be read, is of a newer format, or is Parquet and pyarrow is missing.
    """
    return read_parts(folder, SUFFIXES, lambda parts: join([open_whole(part) for part in parts], folder.name))


def read_readable(folder: Path) -> Table:
    """Like :func:`read_table`, but without pyarrow it skips Parquet parts, which hold the older steps."""
    if is_available():
        return read_table(folder)
    return read_parts(
        folder,
        SUFFIXES,
        lambda parts: join([open_whole(part) for part in parts if part.path.suffix != PARQUET], folder.name),
    )


def read_series(folder: Path, row: str, column: str) -> Series:
    """One cell at the steps that measured it, without loading the rest of the table.

    Checks only the CRC of the last record of each raw segment, and all of them if that does not match: a crash damages
    only the end. :func:`read_table` checks every record.

    Raises:
        UsageError: no such row or column, or as :func:`read_table`.
    """
    return read_parts(folder, SUFFIXES, lambda parts: _series(folder, parts, row, column))


def join(parts: Sequence[RawPart | ColumnarPart], name: str) -> Table:
    """All readings of ``parts`` as one table."""
    rows = tuple(dict.fromkeys(row for part in parts if len(part.steps) for row in part.rows))
    columns = tuple(dict.fromkeys(column for part in parts if len(part.steps) for column in part.columns))
    steps = [np.zeros(0, np.int64), *(part.steps for part in parts)]
    size = 4 * sum(map(len, steps)) * len(rows) * len(columns)
    if size > TABLE_BYTES_MAX:
        raise UsageError(
            f"the table {name} is {size >> 30} GiB in memory; read one `series`, or use `steadytrain query`"
        )
    values = np.full((sum(map(len, steps)), len(rows), len(columns)), absent(name), np.float32)
    start = 0
    for part in parts:
        stop = start + len(part.steps)
        if stop > start:
            values[start:stop] = spread(part, rows, columns, name)
        start = stop
    time = [np.zeros(0, np.float64), *(part.time for part in parts)]
    return Table(name, np.concatenate(steps), np.concatenate(time), rows, columns, values)


def spread(part: Cells, rows: tuple[str, ...], columns: tuple[str, ...], table: str) -> NDArray[np.float32]:
    """All values of ``part``, placed in a table of ``rows`` and ``columns`` that include its own."""
    values = part.block(0, len(part.rows))
    if part.rows == rows and part.columns == columns:
        return values
    row_at = {name: position for position, name in enumerate(rows)}
    column_at = {name: position for position, name in enumerate(columns)}
    wider = np.full((len(values), len(rows), len(columns)), absent(table), np.float32)
    here = np.array([row_at[row] for row in part.rows], np.int64)
    wider[:, here[:, None], [column_at[column] for column in part.columns]] = values
    return wider


def absent(table: str) -> float:
    """The value that marks a cell as not measured: NaN, unless the table can hold a measured NaN."""
    return GRADIENT_ABSENT if table == "gradients" else math.nan


def measured(table: str, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``values`` were measured."""
    mark = absent(table)
    return np.asarray(~np.isnan(values) if math.isnan(mark) else values != mark)


def open_part(part: Part) -> RawPart | ColumnarPart:
    """Open a part without reading it. Checks no CRC of a raw part.

    Raises:
        UsageError: as :func:`read_table`.
        FileNotFoundError: the file was replaced or deleted.
    """
    if part.path.suffix == PARQUET:
        return open_columnar(part.path)
    schema = read_schema(part.schema)
    dtype = record_dtype(len(schema.rows), len(schema.columns))
    try:
        return RawPart(schema, map_records(part.path, dtype))
    except FileNotFoundError:
        raise
    except own(OSError) as error:
        raise UsageError(f"{part.path}: the readings cannot be read ({error.strerror})") from None


def open_whole(part: Part) -> RawPart | ColumnarPart:
    """Open a part and check all its records."""
    opened = open_part(part)
    return opened.whole() if isinstance(opened, RawPart) else opened


def read_schema(path: Path) -> Schema:
    """Read a segment's schema and check its names and sizes.

    Raises:
        UsageError: unreadable, of a newer format, or with sizes that no writer produces.
        FileNotFoundError: the file no longer exists.
    """
    try:
        version, schema = _parse_schema(read_bytes(path, bytes_max=SCHEMA_BYTES_MAX).decode("utf-8"))
    except FileNotFoundError:
        raise
    except own(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable table schema ({error}); the run folder is damaged") from None
    refuse_newer(path, version, TABLE_VERSION, what="table")
    if 4 * len(schema.rows) * len(schema.columns) > RECORD_BYTES_MAX:
        size = f"{len(schema.rows)} x {len(schema.columns)}"
        raise UsageError(f"{path}: {size} values a reading, more than steadytrain writes; refused")
    return schema


def schema_text(schema: Schema) -> str:
    """The JSON schema document of a segment."""
    return as_json(
        {
            "format": "steadytrain.table",
            "version": TABLE_VERSION,
            "stream": schema.stream,
            "table": schema.table,
            "rows": list(schema.rows),
            "columns": list(schema.columns),
        }
    )


def record_dtype(rows: int, columns: int) -> np.dtype[Any]:
    if 4 * rows * columns > RECORD_BYTES_MAX:
        raise ValueError(f"a reading of {rows} x {columns} values is more than {RECORD_BYTES_MAX >> 20} MiB")
    return np.dtype([*_HEAD, ("values", "<f4", (rows, columns))])


def seal_records(records: NDArray[Any]) -> None:
    """Set the CRC of every record."""
    size = records.dtype.itemsize
    data = records.view(np.uint8).data
    records["crc"] = [zlib.crc32(data[at + _CRC_BYTES : at + size]) for at in range(0, len(data), size)]


# The segments of a table nearly always share their schema, and a schema of 10,000 rows takes 3 ms to parse.
@lru_cache(maxsize=64)
def _parse_schema(text: str) -> tuple[int, Schema]:
    data = json.loads(text)
    rows, columns, version = data["rows"], data["columns"], data["version"]
    if data["format"] != "steadytrain.table" or not isinstance(version, int):
        raise ValueError("it has another format")
    if not isinstance(data["stream"], str) or not isinstance(data["table"], str):
        raise ValueError("it names no stream or table")
    return version, Schema(data["stream"], data["table"], checked_names(rows), checked_names(columns))


def _series(folder: Path, parts: Sequence[Part], row: str, column: str) -> Series:
    steps, values = [np.zeros(0, np.int64)], [np.zeros(0, np.float64)]
    known = False
    for part in map(open_part, parts):
        if row not in part.rows or column not in part.columns:
            continue
        known = True
        checked = part.ends_whole() if isinstance(part, RawPart) else part
        at, cell = checked.series(part.rows.index(row), part.columns.index(column))
        here = measured(folder.name, cell)
        steps.append(at[here])
        values.append(cell[here].astype(np.float64))
    if not known:
        raise UsageError(f"{folder}: the table has no cell {row!r}, {column!r}")
    return Series(np.concatenate(steps), np.concatenate(values))
