"""Parquet, read one row group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from steadytrain.checks.data.arrow_rows import pyarrow_for, reading, rows_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell

ROWS_AT_ONCE = 1024


@final
class ParquetFile(DataFormat):
    """Parquet files."""

    kind = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def claims(self, path: Path, head: bytes) -> bool:
        return head.startswith(b"PAR1")

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        pyarrow_for(path)
        import pyarrow.parquet

        number = 0
        with reading(path, "as Parquet"), pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                yield rows_of(batch, number, path.name)
                number += batch.num_rows
                tell(path.name, number, file.metadata.num_rows)
