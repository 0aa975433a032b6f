"""JSON Lines, plain or compressed: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

from steadytrain.checks.data.bytes_of import LINE_BYTES_MAX, lines_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell

LINES = (".jsonl", ".ndjson", ".jsonlines")


@final
class JsonLines(DataFormat):
    """One JSON object per line."""

    kind = "json-lines"
    suffixes: ClassVar[tuple[str, ...]] = tuple(
        f"{name}{packed}" for name in (*LINES, ".json") for packed in ("", ".gz", ".bz2", ".xz", ".zst")
    )

    def claims(self, path: Path, head: bytes) -> bool:
        by_name = any(name in path.name.lower() for name in LINES)
        return by_name or head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        number = 0
        for lines in lines_of(path, tell):
            rows = []
            for place, line in lines:
                if line.isspace() or not line:
                    continue
                rows.append(_row(number, f"{path.name}:{place}", line))
                number += 1
            yield rows


def _row(number: int, place: str, line: bytes) -> Row:
    if len(line) >= LINE_BYTES_MAX:
        return Row(number, place, None, f"a line of more than {LINE_BYTES_MAX >> 20} MiB")
    odd = False
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text, odd = line.decode("utf-8", errors="replace"), True
    try:
        value: Any = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        return Row(number, place, None, f"no JSON: {str(error)[:80]}", odd)
    if not isinstance(value, dict):
        return Row(number, place, None, f"a JSON {type(value).__name__} and no object", odd)
    return Row(number, place, value, "", odd)
