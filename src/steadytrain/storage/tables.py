"""Tables of readings: append-only files of fixed-size records, with a JSON schema beside each.

A record is one reading of all rows at one step: step number, wall-clock time and ``rows x columns`` float32, with a
CRC-32 in front. A record is written with one ``write`` call on an unbuffered file, so a killed process loses at most
the reading in flight, and a reader takes records until the first that is cut short or does not match its CRC.

A segment's rows and columns never change; others start a new segment. Retention thins closed segments and puts them
together (``numbered_files.py``), as Parquet (``columnar.py``) where pyarrow is installed; the readers here read both.
Not here: the scalar signals of a step (``segments.py``), and what is kept for how long (``thinning.py``).
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

from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.model import GRADIENT_ABSENT, FloatArray, IntArray, Reading, Series, Table
from steadytrain.storage.columnar import Cells, ColumnarPart, Positions, checked_names, is_available, open_columnar
from steadytrain.storage.numbered_files import PARQUET, Part, map_records, next_number, read_parts

TABLE_VERSION = 1
SUFFIXES = (PARQUET, ".rows")
RECORDS_PER_SEGMENT_MAX = 100_000
SEGMENT_BYTES_MAX = 2 << 20
"""A segment closes at the record that reaches this. Only closed segments are thinned, so it bounds what waits."""

SCHEMA_SHARE_MAX = 1 / 16
"""But not before its schema is less than this of it: the names of 10,000 tensors take half a megabyte."""

RECORD_BYTES_MAX = 256 << 20
SCHEMA_BYTES_MAX = 64 << 20
TABLE_BYTES_MAX = 8 << 30
"""What a whole table may take in memory: with rows that come and go it can be far larger than its files."""

_CRC_BYTES = 4
_HEAD = [("crc", "<u4"), ("pad", "<u4"), ("step", "<i8"), ("time", "<f8")]


class TableWriter:
    """Appends readings to ``folder / name``, where ``folder`` is that of a stream: ``<run>/tables/<stream>``.

    A reading with other rows or columns starts a new segment, and so does a full one. Raises ``OSError`` when the disk
    does not take a record whole; the caller decides what that means. Nothing is made on disk before the first reading.
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
        self._file: int | None = None
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
        written = os.write(self._file, self._bytes)
        if written != size:
            self._take_back(size)
            raise OSError(f"the disk took {written} of {size} bytes of step {step} of the table {self._name}")
        self._count += 1

    def close(self) -> None:
        """End the segment; the next reading starts another."""
        if self._file is not None:
            os.close(self._file)
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
        """Cut a torn record off and go on in a new segment: should the cut fail too, only the torn end is lost."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self._count * size)
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
        self._file = os.open(self._folder / f"{number:06d}.rows", flags, 0o644)
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
    """A segment of records, mapped into memory and not yet read."""

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
        """The values of rows ``start`` to ``stop`` in the readings ``at``: (readings, rows, columns)."""
        return np.asarray(self.records["values"][at, start:stop], np.float32)

    def series(self, row: int, column: int) -> tuple[IntArray, NDArray[np.float32]]:
        """Steps and values of one cell."""
        return self.steps, self.records["values"][:, row, column].astype(np.float32)

    def whole(self) -> RawPart:
        """The leading records that match their CRC, which is taken over all of a record that follows it."""
        size = self.records.dtype.itemsize
        data = self.records.view(np.uint8).data
        for index, expected in enumerate(self.records["crc"].tolist()):
            if zlib.crc32(data[index * size + _CRC_BYTES : (index + 1) * size]) != expected:
                return RawPart(self.schema, self.records[:index])
        return self

    def ends_whole(self) -> RawPart:
        """All records when the last one matches its CRC, else :meth:`whole`: what a crash damages is the end."""
        return self if len(RawPart(self.schema, self.records[-1:]).whole().records) else self.whole()


def read_table(folder: Path) -> Table:
    """All whole readings of a table, over all its parts, with the rows and columns of every part side by side.

    What a part lacks is NaN, and ``GRADIENT_ABSENT`` in the table ``gradients``, where a NaN was measured.

    Raises:
        UsageError: a part cannot be read, is of a newer format, or is Parquet and pyarrow is missing.
    """
    return read_parts(folder, SUFFIXES, lambda parts: join([open_whole(part) for part in parts], folder.name))


def read_readable(folder: Path) -> Table:
    """As :func:`read_table`, but without the parts in Parquet, the older steps, where pyarrow is missing."""
    if is_available():
        return read_table(folder)
    return read_parts(
        folder,
        SUFFIXES,
        lambda parts: join([open_whole(part) for part in parts if part.path.suffix != PARQUET], folder.name),
    )


def read_series(folder: Path, row: str, column: str) -> Series:
    """The steps at which one cell was measured, read without loading the rest of the table.

    Of each raw segment only the CRC of its last record is checked, and all of them when that one does not match: what
    a crash damages is the end. :func:`read_table` checks every record.

    Raises:
        UsageError: no such row or column, or as :func:`read_table`.
    """
    return read_parts(folder, SUFFIXES, lambda parts: _series(folder, parts, row, column))


def join(parts: Sequence[RawPart | ColumnarPart], name: str) -> Table:
    """One table of all the readings of ``parts``."""
    rows = tuple(dict.fromkeys(row for part in parts if len(part.steps) for row in part.rows))
    columns = tuple(dict.fromkeys(column for part in parts if len(part.steps) for column in part.columns))
    steps = [np.zeros(0, np.int64), *(part.steps for part in parts)]
    size = 4 * sum(map(len, steps)) * len(rows) * len(columns)
    if size > TABLE_BYTES_MAX:
        raise UsageError(
            f"the table {name} is {size >> 30} GiB in memory; read one `series`, or ask with `steadytrain query`"
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
    """All values of ``part`` in a table of ``rows`` and ``columns``, which are its own or more."""
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
    """The value of a cell that was not measured: NaN, but where a NaN can be measured."""
    return GRADIENT_ABSENT if table == "gradients" else math.nan


def measured(table: str, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``values`` were measured."""
    mark = absent(table)
    return np.asarray(~np.isnan(values) if math.isnan(mark) else values != mark)


def open_part(part: Part) -> RawPart | ColumnarPart:
    """A part, opened and not yet read: of a raw one no CRC is checked.

    Raises:
        UsageError: as :func:`read_table`.
        FileNotFoundError: it is gone: replaced, or taken away.
    """
    if part.path.suffix == PARQUET:
        return open_columnar(part.path)
    schema = read_schema(part.schema)
    dtype = record_dtype(len(schema.rows), len(schema.columns))
    try:
        return RawPart(schema, map_records(part.path, dtype))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{part.path}: the readings cannot be read ({error.strerror})") from None


def open_whole(part: Part) -> RawPart | ColumnarPart:
    """A part of which every record has been checked."""
    opened = open_part(part)
    return opened.whole() if isinstance(opened, RawPart) else opened


def read_schema(path: Path) -> Schema:
    """A segment's schema, with its names and sizes checked.

    Raises:
        UsageError: it cannot be read, is of a newer format, or claims what no writer writes.
        FileNotFoundError: it is gone.
    """
    try:
        if path.stat().st_size > SCHEMA_BYTES_MAX:
            raise ValueError(f"larger than {SCHEMA_BYTES_MAX >> 20} MiB")
        version, schema = _parse_schema(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable table schema ({error}); the run folder is damaged") from None
    refuse_newer(path, version, TABLE_VERSION, what="table")
    if 4 * len(schema.rows) * len(schema.columns) > RECORD_BYTES_MAX:
        size = f"{len(schema.rows)} x {len(schema.columns)}"
        raise UsageError(f"{path}: {size} values a reading, more than is ever written; refused")
    return schema


def schema_text(schema: Schema) -> str:
    """The JSON document beside a segment."""
    return json.dumps(
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
    """Give every record its CRC."""
    size = records.dtype.itemsize
    data = records.view(np.uint8).data
    records["crc"] = [zlib.crc32(data[at + _CRC_BYTES : at + size]) for at in range(0, len(data), size)]


# The segments of a table share their schema almost always, and that of 10,000 rows takes 3 ms to parse.
@lru_cache(maxsize=64)
def _parse_schema(text: str) -> tuple[int, Schema]:
    data = json.loads(text)
    rows, columns, version = data["rows"], data["columns"], data["version"]
    if data["format"] != "steadytrain.table" or not isinstance(version, int):
        raise ValueError("its format is another")
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
