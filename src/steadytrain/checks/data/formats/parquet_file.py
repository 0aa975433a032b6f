"""Parquet, read one row group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from steadytrain.checks.data.arrow_rows import pyarrow_for, rows_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell
from steadytrain.core.errors import UsageError

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
        import pyarrow
        import pyarrow.parquet

        number = 0
        try:
            with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
                for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                    yield rows_of(batch, number, path.name)
                    number += batch.num_rows
                    tell(path.name, number, file.metadata.num_rows)
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0][:160]})") from None
