"""JSON Lines: one object per line, as in LLaMA-Factory's ``trainer_log.jsonl`` and many scripts.

Also reads one JSON document that is a list of such objects, or an object of equally long lists (Keras' history).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.logs.column_names import role_of
from steadytrain.logs.json_rows import RowList, flat
from steadytrain.logs.log_rows import RowsBuilder
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.numerals import counted
from steadytrain.logs.reader import ANY_ROWS, Columns, Log, Reader, Tell
from steadytrain.logs.text_files import blocks, document_text, encoding_of, is_text, text_of

LINES_TRIED = 20
LINE_SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")
_LIST = re.compile(r"\s*\[\s*(?=\{|\])")


@final
class JsonLines(Reader):
    """JSON Lines, a JSON list of objects, or an object of lists."""

    kind = "json-lines"
    general = ANY_ROWS
    in_folders: ClassVar[tuple[str, ...]] = ("*.jsonl", "*.ndjson")

    def claims(self, path: Path, head: bytes) -> bool:
        if not head or not is_text(head):
            return False
        text, suffix = text_of(head).lstrip("\ufeff \n\t"), path.suffix.lower()
        if text[:1] in ("{", "[") and suffix in (".json", *LINE_SUFFIXES):
            return True
        lines = [line for line in text.split("\n")[:-1] if line.strip()][:LINES_TRIED]
        objects = [isinstance(_object(line), dict) for line in lines]
        return any(objects) if suffix in LINE_SUFFIXES else bool(lines) and all(objects)

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        if _is_document(path):
            builder, notes = _of_document(path)
        else:
            builder, broken = RowsBuilder(), 0
            for lines in blocks(path, tell):
                for line in lines:
                    if not line or line.isspace():
                        continue
                    row = _object(line)
                    if isinstance(row, dict):
                        _add(builder, row)
                    else:
                        broken += 1
            notes = [f"{counted(broken, 'line')} skipped: not a complete JSON object."] if broken else []
        if not builder.seen:
            raise UsageError(f"{path}: no rows of a log in it, neither JSON objects by line nor a list of them")
        return logs_of(builder.build(), columns, path=path, kind=self.kind, notes=notes)


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _add(builder: RowsBuilder, row: dict[str, Any]) -> None:
    run = next((value for name, value in row.items() if _names_run(name, value)), None)
    builder.add(flat(row), run=str(run)[:200] if run is not None else None)


def _names_run(name: str, value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and role_of(name).what == "run"


def _is_document(path: Path) -> bool:
    """Whether the file is a single JSON value over many lines, or a list, instead of one object per line."""
    with open_regular(path) as file:
        head = file.read(1 << 16)
    text = head.decode(encoding_of(head), errors="replace").lstrip("\ufeff \r\n\t")
    if text.startswith("["):
        return True
    first = text.split("\n", 1)[0]
    return (_object(first) is None and path.suffix.lower() in (".json",)) or _holds_lists(_object(first))


def _holds_lists(value: Any) -> bool:
    return isinstance(value, dict) and sum(isinstance(entry, list) for entry in value.values()) > len(value) / 2


def _of_document(path: Path) -> tuple[RowsBuilder, list[str]]:
    text, builder = document_text(path).lstrip("\ufeff"), RowsBuilder()
    begin = _LIST.match(text)
    if begin is not None:
        rows = RowList(text, begin.end())
        for row in rows:
            _add(builder, row)
        if rows.is_whole or builder.seen:
            cut = f"The file is cut off or damaged; its first {counted(builder.seen, 'row')} were read."
            return builder, [] if rows.is_whole else [cut]
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: truncated or not JSON ({error})") from None
    for row in _document_rows(document):
        _add(builder, row)
    return builder, []


def _document_rows(document: object) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        yield from (entry for entry in document if isinstance(entry, dict))
    elif isinstance(document, dict) and _holds_lists(document):
        lists: dict[str, Sequence[Any]] = {name: entry for name, entry in document.items() if isinstance(entry, list)}
        for place in range(max(map(len, lists.values()))):
            yield {name: entry[place] for name, entry in lists.items() if place < len(entry)}
    elif isinstance(document, dict):
        lists_in = [entry for entry in document.values() if isinstance(entry, list)]
        longest = max(lists_in, key=len, default=[])
        yield from (entry for entry in longest if isinstance(entry, dict))
