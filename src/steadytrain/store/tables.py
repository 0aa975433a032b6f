"""Tables of readings: append-only files of fixed-size records, with a JSON schema beside each.

A record is one reading of all rows at one step: step number, wall-clock time and ``rows x columns`` float32, with a
CRC-32 in front. A record is written with one ``write`` call on an unbuffered file, so a killed process loses at most
the reading in flight, and a reader takes records until the first that is cut short or does not match its CRC.

A segment's rows and columns never change; others start a new segment. Not here: the scalar signals of a step
(``segments.py``), retention and compaction.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.errors import UsageError
from steadytrain.model import GRADIENT_ABSENT, Reading, Series, Table

TABLE_VERSION = 1
RECORDS_PER_SEGMENT_MAX = 100_000
SEGMENT_BYTES_MAX = 4 << 20
"""A segment closes at the record that reaches this. Only closed segments are thinned, so it bounds what waits."""

RECORD_BYTES_MAX = 256 << 20
SCHEMA_BYTES_MAX = 64 << 20

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
        self._record: NDArray[Any] = np.zeros(1, _record_dtype(0, 0))
        self._bytes = memoryview(b"")
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
            and self._count * len(self._bytes) < SEGMENT_BYTES_MAX
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
        dtype = _record_dtype(len(rows), len(columns))
        self._folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.stem) for path in _segment_paths(self._folder)), default=0)
        schema = {
            "format": "steadytrain.table",
            "version": TABLE_VERSION,
            "stream": self._stream,
            "table": self._name,
            "rows": list(rows),
            "columns": list(columns),
        }
        (self._folder / f"{number:06d}.json").write_text(json.dumps(schema), encoding="utf-8")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = os.open(self._folder / f"{number:06d}.rows", flags, 0o644)
        self._rows, self._columns = rows, columns
        self._record = np.zeros(1, dtype)
        self._bytes = self._record.view(np.uint8).data
        self._count = 0


@dataclass(frozen=True)
class Schema:
    """What the records of a segment hold."""

    stream: str
    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def read_table(folder: Path) -> Table:
    """All whole readings of a table, over all its segments, with the rows and columns of every segment side by side.

    What a segment lacks is NaN, and ``GRADIENT_ABSENT`` in the table ``gradients``, where a NaN was measured.

    Raises:
        UsageError: a schema or its records cannot be read, or are of a newer format.
    """
    parts = [(schema, _whole(records)) for schema, records in _segments(folder)]
    parts = [(schema, records) for schema, records in parts if len(records)]
    rows = tuple(dict.fromkeys(name for schema, _ in parts for name in schema.rows))
    columns = tuple(dict.fromkeys(name for schema, _ in parts for name in schema.columns))
    row_at = {name: position for position, name in enumerate(rows)}
    column_at = {name: position for position, name in enumerate(columns)}
    values = np.full((sum(len(records) for _, records in parts), len(rows), len(columns)), absent(folder.name), "<f4")
    start = 0
    for schema, records in parts:
        stop = start + len(records)
        here = np.ix_(range(start, stop), [row_at[row] for row in schema.rows], [column_at[c] for c in schema.columns])
        values[here] = records["values"]
        start = stop
    return Table(
        name=folder.name,
        steps=_joined([records["step"] for _, records in parts], np.int64),
        time=_joined([records["time"] for _, records in parts], np.float64),
        rows=rows,
        columns=columns,
        values=values,
    )


def read_series(folder: Path, row: str, column: str) -> Series:
    """The steps at which one cell was measured, read without loading the rest of the table.

    Of each segment only the CRC of its last record is checked, and all of them when that one does not match: what a
    crash damages is the end. :func:`read_table` checks every record.

    Raises:
        UsageError: no such row or column, or the segments cannot be read.
    """
    steps, values = [np.zeros(0, np.int64)], [np.zeros(0, np.float64)]
    known = False
    for schema, records in _segments(folder):
        if row not in schema.rows or column not in schema.columns:
            continue
        known = True
        if len(records) and not len(_whole(records[-1:])):
            records = _whole(records)
        cell = records["values"][:, schema.rows.index(row), schema.columns.index(column)].astype(np.float64)
        here = measured(folder.name, cell)
        steps.append(records["step"][here].astype(np.int64))
        values.append(cell[here])
    if not known:
        raise UsageError(f"{folder}: the table has no cell {row!r}, {column!r}")
    return Series(np.concatenate(steps), np.concatenate(values))


def absent(table: str) -> float:
    """The value of a cell that was not measured: NaN, but where a NaN can be measured."""
    return GRADIENT_ABSENT if table == "gradients" else math.nan


def measured(table: str, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``values`` were measured."""
    mark = absent(table)
    return np.asarray(~np.isnan(values) if math.isnan(mark) else values != mark)


def _segments(folder: Path) -> list[tuple[Schema, NDArray[Any]]]:
    """Every segment, oldest first, mapped into memory and not yet read."""
    return [(schema, records) for path in _segment_paths(folder) for schema, records in [_open_segment(path)]]


def _open_segment(path: Path) -> tuple[Schema, NDArray[Any]]:
    schema = read_schema(path.with_suffix(".json"))
    dtype = _record_dtype(len(schema.rows), len(schema.columns))
    try:
        count = path.stat().st_size // dtype.itemsize
        records = np.asarray(np.memmap(path, dtype, "r", shape=(count,))) if count else np.zeros(0, dtype)
    except OSError as error:
        raise UsageError(f"{path}: the readings cannot be read ({error.strerror})") from None
    return schema, records


def read_schema(path: Path) -> Schema:
    """A segment's schema, with its names and sizes checked.

    Raises:
        UsageError: it cannot be read, is of a newer format, or claims what no writer writes.
    """
    try:
        if path.stat().st_size > SCHEMA_BYTES_MAX:
            raise ValueError(f"larger than {SCHEMA_BYTES_MAX >> 20} MiB")
        data = json.loads(path.read_text(encoding="utf-8"))
        form, version, rows, columns = data["format"], data["version"], data["rows"], data["columns"]
        stream, table = data["stream"], data["table"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable table schema ({error}); the run folder is damaged") from None
    if isinstance(version, int) and version > TABLE_VERSION:
        raise UsageError(
            f"{path}: table format version {version} is newer than this steadytrain reads ({TABLE_VERSION}); "
            "upgrade steadytrain"
        )
    if form != "steadytrain.table" or version != TABLE_VERSION or not (_are_names(rows) and _are_names(columns)):
        raise UsageError(f"{path}: not the schema of a table; the run folder is damaged")
    if not isinstance(stream, str) or not isinstance(table, str):
        raise UsageError(f"{path}: the schema names no stream or table; the run folder is damaged")
    if 4 * len(rows) * len(columns) > RECORD_BYTES_MAX:
        raise UsageError(f"{path}: {len(rows)} x {len(columns)} values a reading, more than is ever written; refused")
    return Schema(stream, table, tuple(rows), tuple(columns))


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _record_dtype(rows: int, columns: int) -> np.dtype[Any]:
    if 4 * rows * columns > RECORD_BYTES_MAX:
        raise ValueError(f"a reading of {rows} x {columns} values is more than {RECORD_BYTES_MAX >> 20} MiB")
    return np.dtype([*_HEAD, ("values", "<f4", (rows, columns))])


def _whole(records: NDArray[Any]) -> NDArray[Any]:
    """The leading records that match their CRC, which is taken over all of a record that follows it."""
    size = records.dtype.itemsize
    data = records.view(np.uint8).data
    for index, expected in enumerate(records["crc"].tolist()):
        if zlib.crc32(data[index * size + _CRC_BYTES : (index + 1) * size]) != expected:
            return records[:index]
    return records


def _segment_paths(folder: Path) -> list[Path]:
    """The segments of a table, oldest first."""
    return sorted((path for path in folder.glob("*.rows") if path.stem.isdecimal()), key=lambda path: int(path.stem))


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)
