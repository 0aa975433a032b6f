"""Rows of Arrow: lists of integers become arrays without a copy each, other values Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.checks.data.data_check import Row, Tell
from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install

if TYPE_CHECKING:
    import pyarrow

ROWS_AT_ONCE = 1024
FILE_MARK = b"ARROW1"
STREAM_MARK = b"\xff\xff\xff\xff"


def pyarrow_for(path: Path) -> None:
    """Check that pyarrow is installed.

    Raises:
        UsageError: it is not.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(f"{path}: reading it needs pyarrow; `{install('data')}`") from None


def rows_of_file(path: Path, tell: Tell) -> Iterator[list[Row]]:
    """Yield the rows of an Arrow file, stream or Feather, in parts.

    Raises:
        UsageError: the file cannot be read, or pyarrow is missing.
    """
    pyarrow_for(path)
    import pyarrow

    number, size = 0, path.stat().st_size
    with reading(path, "as Arrow"), pyarrow.OSFile(str(path)) as file:
        for batch in _batches(file):
            for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                part = batch.slice(begin, ROWS_AT_ONCE)
                part.validate(full=True)
                yield rows_of(part, number, path.name)
                number += part.num_rows
            tell(path.name, min(file.tell(), size), size)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Around what pyarrow does with a file: on a damaged one it raises errors of many kinds, also SystemError.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # pyarrow: ArrowException, OSError, SystemError, UnicodeDecodeError, MemoryError, ...
        told = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UsageError(f"{path}: cannot be read {what} ({told[:160]})") from None


def rows_of(batch: pyarrow.RecordBatch, first: int, name: str) -> list[Row]:
    """The rows of a batch, numbered from ``first``."""
    columns = {field: _values(batch.column(place)) for place, field in enumerate(batch.schema.names)}
    return [
        Row(first + place, f"{name}:{first + place}", {field: values[place] for field, values in columns.items()})
        for place in range(batch.num_rows)
    ]


def _values(column: pyarrow.Array) -> list[Any]:
    import pyarrow

    kind = column.type
    lists = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if lists and pyarrow.types.is_primitive(kind.value_type) and not column.null_count:
        numbers = column.values
        if not numbers.null_count and (
            pyarrow.types.is_integer(kind.value_type) or pyarrow.types.is_floating(kind.value_type)
        ):
            flat, offsets = numbers.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
            return [flat[begin:end] for begin, end in pairwise(offsets)]
    values: list[Any] = column.to_pylist()
    return values


def _batches(file: pyarrow.OSFile) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    begins = file.read(len(FILE_MARK))
    file.seek(0)
    if begins == FILE_MARK:
        reader = pyarrow.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
        return
    yield from pyarrow.ipc.open_stream(file)
