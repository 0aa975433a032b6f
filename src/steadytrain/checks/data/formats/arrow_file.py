"""Arrow files: the stream that Hugging Face's datasets write, and the file format (Feather)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from steadytrain.checks.data.arrow_rows import FILE_MARK, STREAM_MARK, rows_of_file
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell


@final
class ArrowFile(DataFormat):
    """Arrow streams and Feather files."""

    kind = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def claims(self, path: Path, head: bytes) -> bool:
        return head.startswith(FILE_MARK) or (head.startswith(STREAM_MARK) and path.suffix == ".arrow")

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        return rows_of_file(path, tell)
