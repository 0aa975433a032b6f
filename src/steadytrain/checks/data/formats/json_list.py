"""One JSON document that is a list of objects, common for instruction data. Read one object at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

from steadytrain.checks.data.bytes_of import LINE_BYTES_MAX, blocks_of
from steadytrain.checks.data.data_check import DataFormat, Options, Row, Tell

_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


@final
class JsonList(DataFormat):
    """A JSON list of objects, common for instruction data."""

    kind = "json-list"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".json.gz", ".json.bz2", ".json.xz", ".json.zst")

    def claims(self, path: Path, head: bytes) -> bool:
        return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and not path.name.lower().startswith(".")

    def rows(self, path: Path, options: Options, tell: Tell) -> Iterator[list[Row]]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        text, number, begun, ended = "", 0, False, False
        for block in blocks_of(path, tell):
            text += decoder.decode(block)
            if not begun:
                text, begun = text.lstrip()[1:], True
            rows, place = [], 0
            while not ended:
                place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
                if text[place : place + 1] == "]":
                    ended = True
                    break
                try:
                    value, place = _DECODER.raw_decode(text, place)
                except (ValueError, RecursionError):
                    break  # usually truncated: the rest comes with the next block
                if text[place : place + 1] == "" and not isinstance(value, (dict, list, str)):
                    break  # a number may continue
                rows.append(_row(number, f"{path.name}[{number}]", value))
                number += 1
            text = text[place:]
            if len(text) > LINE_BYTES_MAX:
                break
            yield rows
        if not ended:
            why = (
                "the list is cut off or damaged" if len(text) <= LINE_BYTES_MAX else "an entry is too long, or no JSON"
            )
            yield [Row(number, f"{path.name}[{number}]", None, f"{why} from here on")]


def _row(number: int, place: str, value: Any) -> Row:
    if isinstance(value, dict):
        return Row(number, place, value, "", False)
    if isinstance(value, str):
        return Row(number, place, {"text": value}, "", False)
    return Row(number, place, None, f"a JSON {type(value).__name__} and no object")
