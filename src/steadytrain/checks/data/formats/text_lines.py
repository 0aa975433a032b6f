"""Plain text: one row per line, without empty lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from steadytrain.checks.data.bytes_of import lines_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell

SUFFIXES = (".txt", ".text", ".txt.gz", ".txt.bz2", ".txt.xz", ".txt.zst")


@final
class TextLines(DataFormat):
    """Text files, one row per line."""

    kind = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def claims(self, path: Path, head: bytes) -> bool:
        return path.name.lower().endswith(SUFFIXES) and b"\x00" not in head

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        number = 0
        for lines in lines_of(path, tell):
            rows = []
            for place, line in lines:
                if not line.strip():
                    continue
                odd = False
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError:
                    text, odd = line.decode("utf-8", errors="replace"), True
                rows.append(Row(number, f"{path.name}:{place}", {"text": text}, "", odd))
                number += 1
            yield rows
