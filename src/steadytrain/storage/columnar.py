"""A part of a table as Parquet: cells in long form, sorted by row, so that one series is one short read.

Columns are ``name``, ``step``, ``time`` and one float32 column for each column of the table. A row group holds the
whole series of as many rows as make ``GROUP_CELLS``, so a row's number gives its position without a search. A cell that
was not measured has the same value as in the raw records (``tables.absent``). pyarrow is imported on use: the rest of
the storage works without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.bounded_files import check_size
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.extras import install
from steadytrain.core.model import FloatArray, IntArray
from steadytrain.storage.documents import as_json

if TYPE_CHECKING:
    import pyarrow.parquet

COLUMNAR_VERSION = 1
GROUP_CELLS = 65_536
"""Cells of a column in a row group. Reading one series decodes these (about 1 ms), and a file has few groups."""

PART_VALUES_MAX = 1 << 28
KEYS = ("name", "step", "time")
RESERVED = (*KEYS, "run", "rank", "stream")

_FACTS, _NAMES = b"steadytrain", b"steadytrain.names"
_COMPRESSION = "zstd"
_COMPRESSION_LEVEL = 1


Positions = NDArray[np.intp] | slice


class Cells(Protocol):
    """Readings of a table, in memory or in a file."""

    @property
    def rows(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def steps(self) -> IntArray: ...
    @property
    def time(self) -> FloatArray: ...
    def block(self, start: int, stop: int, at: Positions = slice(None)) -> NDArray[np.float32]:
        """The values of rows ``start`` to ``stop`` in the readings ``at``, shape (readings, rows, columns)."""


def is_available() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def fits(rows: Sequence[str], columns: Sequence[str], readings: int) -> bool:
    """Whether these readings can be written as Parquet: they have cells, and no two columns share a name."""
    stored = [*KEYS, *map(column_name, columns)]
    return bool(rows and columns and readings) and len(set(stored)) == len(stored)


def column_name(column: str) -> str:
    """The Parquet name of a table column, distinct from the columns that every part has."""
    return f"{column}_value" if column in RESERVED else column


def checked_names(names: Any) -> tuple[str, ...]:
    """Check the names of rows or columns from a file.

    Raises:
        ValueError: not a list of distinct strings.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("an entry is not a name")
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    return tuple(names)


def write_columnar(path: Path, cells: Cells, *, stream: str, table: str, may_go_on: Callable[[], bool]) -> bool:
    """Write ``cells``. Returns False, with the file unfinished, if ``may_go_on`` returned False between two row
    groups.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, rows, columns = len(cells.steps), cells.rows, cells.columns
    rows_per_group = max(1, GROUP_CELLS // count)
    stored = [column_name(column) for column in columns]
    document = {
        "format": "steadytrain.table",
        "columnar": COLUMNAR_VERSION,
        "stream": stream,
        "table": table,
        "readings": count,
        "rows_per_group": rows_per_group,
    }
    names = {"rows": list(rows), "columns": list(columns)}
    schema = pa.schema(
        [
            ("name", pa.dictionary(pa.int32(), pa.string())),
            ("step", pa.int64()),
            ("time", pa.float64()),
            *((column, pa.float32()) for column in stored),
        ]
    )
    writer = pq.ParquetWriter(
        path,
        schema,
        compression=_COMPRESSION,
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=["name"],
        column_encoding={"step": "DELTA_BINARY_PACKED", **dict.fromkeys(("time", *stored), "BYTE_STREAM_SPLIT")},
        write_statistics=["name", "step"],
        write_page_checksum=True,
        store_schema=False,
    )
    with writer:
        writer.add_key_value_metadata({_FACTS: as_json(document), _NAMES: as_json(names)})
        for start in range(0, len(rows), rows_per_group):
            if not may_go_on():
                return False
            stop = min(start + rows_per_group, len(rows))
            values = np.ascontiguousarray(cells.block(start, stop).transpose(2, 1, 0)).reshape(len(columns), -1)
            names = pa.DictionaryArray.from_arrays(
                np.repeat(np.arange(stop - start, dtype=np.int32), count), pa.array(rows[start:stop], pa.string())
            )
            series = [names, np.tile(cells.steps, stop - start), np.tile(cells.time, stop - start), *values]
            writer.write_table(pa.table(series, schema=schema), row_group_size=(stop - start) * count)
    return True


@dataclass(frozen=True)
class ColumnarPart:
    """An opened Parquet part. Its values are read on demand."""

    path: Path
    file: pyarrow.parquet.ParquetFile
    stream: str
    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    readings: int
    rows_per_group: int

    @cached_property
    def steps(self) -> IntArray:
        return np.asarray(self._group(0, ["step"])[0][0], np.int64)

    @cached_property
    def time(self) -> FloatArray:
        return np.asarray(self._group(0, ["time"])[0][0], np.float64)

    def block(self, start: int, stop: int, at: Positions = slice(None)) -> NDArray[np.float32]:
        """The values of rows ``start`` to ``stop`` in the readings ``at``, shape (readings, rows, columns)."""
        found = np.empty((len(self.steps[at]), stop - start, len(self.columns)), np.float32)
        for group in range(start // self.rows_per_group, -(-stop // self.rows_per_group)):
            first = group * self.rows_per_group
            here = slice(max(start, first), min(stop, first + self.rows_per_group))
            for position, values in enumerate(self._group(group, list(map(column_name, self.columns)))):
                part = values[here.start - first : here.stop - first]
                found[:, here.start - start : here.stop - start, position] = part.T[at]
        return found

    def series(self, row: int, column: int) -> tuple[IntArray, NDArray[np.float32]]:
        """Steps and values of one cell."""
        group, within = divmod(row, self.rows_per_group)
        steps, values = self._group(group, ["step", column_name(self.columns[column])])
        return steps[within], values[within]

    def _group(self, group: int, columns: list[str]) -> list[NDArray[Any]]:
        """Columns of one row group, each of shape (rows, readings)."""
        import pyarrow as pa

        try:
            table = self.file.read_row_group(group, columns=columns, use_threads=False)
            rows = min(self.rows_per_group, len(self.rows) - group * self.rows_per_group)
            if table.num_rows != rows * self.readings or any(table.column(column).null_count for column in columns):
                raise ValueError("cells are missing")
            return [table.column(column).to_numpy().reshape(-1, self.readings) for column in columns]
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise UsageError(f"{self.path}: not readable ({_line(error)}); the run folder is damaged") from None


def open_columnar(path: Path) -> ColumnarPart:
    """Open a Parquet part and check that it has the layout of :func:`write_columnar`.

    Raises:
        UsageError: pyarrow is missing, or the file is damaged, of a newer format or foreign.
        FileNotFoundError: the file no longer exists.
    """
    if not is_available():
        raise UsageError(f"{path}: the older steps of this table are Parquet; to read them, {install('query')}")
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"step": pa.int64(), "time": pa.float64()}
    try:
        check_size(path)
        file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        metadata = file.metadata.metadata or {}
        facts = _facts(metadata[_FACTS], metadata[_NAMES])
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a table of a run ({_line(error)}); the run folder is damaged") from None
    refuse_newer(path, facts.version, COLUMNAR_VERSION, what="table")
    kinds |= dict.fromkeys(map(column_name, facts.columns), pa.float32())
    found = {field.name: field.type for field in file.schema_arrow}
    if any(found.get(name) != kind for name, kind in kinds.items()) or "name" not in found:
        raise UsageError(f"{path}: its columns differ from its metadata; the run folder is damaged")
    _check_layout(path, file, facts)
    return ColumnarPart(
        path, file, facts.stream, facts.table, facts.rows, facts.columns, facts.readings, facts.rows_per_group
    )


@dataclass(frozen=True)
class _Facts:
    version: int
    stream: str
    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    readings: int
    rows_per_group: int


def _facts(document: bytes, names: bytes) -> _Facts:
    """Read and check a file's metadata."""
    data = json.loads(document)
    numbers = data["columnar"], data["readings"], data["rows_per_group"]
    if data["format"] != "steadytrain.table" or not all(isinstance(data[key], str) for key in ("stream", "table")):
        raise ValueError("its metadata are not those of a table")
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        raise ValueError("a count in its metadata is not a number")
    rows, columns = _names(names)
    if not fits(rows, columns, numbers[1]):
        raise ValueError("its metadata name no cells")
    return _Facts(numbers[0], data["stream"], data["table"], rows, columns, numbers[1], numbers[2])


# The files of a table nearly always share their names, and 10,000 names take 3 ms to parse.
@lru_cache(maxsize=64)
def _names(document: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    data = json.loads(document)
    return checked_names(data["rows"]), checked_names(data["columns"])


def _check_layout(path: Path, file: pyarrow.parquet.ParquetFile, facts: _Facts) -> None:
    """Refuse a file that claims a size we never write, or whose layout contradicts its metadata."""
    metadata, count = file.metadata, facts.readings
    size = len(facts.rows) * facts.readings * len(facts.columns)
    if size > PART_VALUES_MAX:
        raise UsageError(f"{path}: {size} values, more than steadytrain writes to one file; refused")
    groups = -(-len(facts.rows) // facts.rows_per_group)
    if metadata.num_rows != len(facts.rows) * count or metadata.num_row_groups != groups:
        raise UsageError(f"{path}: its layout contradicts its metadata; the run folder is damaged")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
