"""Rows out of batches of Arrow: lists of whole numbers as arrays without a copy of each, the rest as Python values."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.checks.data.data_check import Row
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    import pyarrow


def pyarrow_for(path: Path) -> None:
    """See that pyarrow is there.

    Raises:
        UsageError: it is not.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(f"{path}: reading it needs pyarrow; `pip install 'steadytrain[data]'`") from None


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
