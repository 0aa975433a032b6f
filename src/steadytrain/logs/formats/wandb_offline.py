"""Runs that Weights & Biases recorded on disk (``run-ID.wandb``, offline or online), read without wandb.

The file is a LevelDB log of protobuf records. Newer versions of wandb no longer have a reader for it. This one uses
only the fields of a history; their numbers have been the same since 2020.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.logs.json_rows import flat
from steadytrain.logs.log_rows import RowsBuilder
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.numerals import counted
from steadytrain.logs.reader import Columns, Log, Reader, Tell

MAGIC = b":W&B"
HEADER_BYTES = 7
BLOCK_BYTES = 32768
RECORD_BYTES_MAX = 1 << 27
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _RUN = 2, 17
_ITEM, _STEP = 1, 2
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_RUN_ID, _DISPLAY_NAME = 1, 8
_FIXED64, _BYTES, _FIXED32 = 1, 2, 5


@final
class WandbOffline(Reader):
    """A run of Weights & Biases on disk: ``run-ID.wandb``, or its folder."""

    kind = "wandb"
    whole_folder = True
    in_folders: ClassVar[tuple[str, ...]] = ("*.wandb",)

    def claims(self, path: Path, head: bytes) -> bool:
        if head:
            return head.startswith(MAGIC)
        return bool(_run_files(path))

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        logs: list[Log] = []
        for file in _run_files(path) if path.is_dir() else [path]:
            logs += _read_run(file, columns, tell)
        return tuple(logs)


def _run_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("run-*.wandb"))
    except OSError:
        return []


def _read_run(path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
    builder, name, broken, read_bytes = RowsBuilder(), "", 0, 0
    for record, end in _records(path, tell):
        read_bytes = end
        try:
            fields = dict(_fields(record))
            if _RUN in fields:
                run = dict(_fields(fields[_RUN]))
                name = (run.get(_DISPLAY_NAME) or run.get(_RUN_ID) or b"").decode("utf-8", errors="replace")
            if _HISTORY in fields:
                builder.add(_history(fields[_HISTORY]))
        except (ValueError, IndexError):
            broken += 1
    if not builder.seen:
        raise UsageError(f"{path}: no history in it; the run had not logged anything, or the file is cut short")
    notes = [f"{counted(broken, 'record')} skipped: damaged."] if broken else []
    unread = path.stat().st_size - read_bytes
    if unread > 0:
        notes.append(f"{path.name} is cut short or damaged; its last {unread:,} bytes were not read.")
    return logs_of(builder.build(), columns, path=path, kind=WandbOffline.kind, name=name or path.stem, notes=notes)


def _history(message: bytes) -> dict[str, float]:
    row = {}
    for number, value in _fields(message):
        if number == _ITEM:
            item = list(_fields(value))
            nested = "/".join(part.decode("utf-8", errors="replace") for field, part in item if field == _NESTED_KEY)
            plain = next((part.decode("utf-8", errors="replace") for field, part in item if field == _KEY), "")
            text = next((part for field, part in item if field == _VALUE_JSON), b"null")
            row[plain or nested] = json.loads(text.decode("utf-8", errors="replace"))
    return flat(row)


def _records(path: Path, tell: Tell) -> Iterator[tuple[bytes, int]]:
    """Yield the records of the log, each with the position of its end in the file. Stops at a truncated record."""
    size = path.stat().st_size
    with open_regular(path) as file:
        file.seek(HEADER_BYTES)
        position, parts = HEADER_BYTES, b""
        while position + HEADER_BYTES <= size:
            left = BLOCK_BYTES - position % BLOCK_BYTES
            if left < HEADER_BYTES:
                position += left
                file.seek(position)
                continue
            head = file.read(HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                return
            length, kind = int.from_bytes(head[4:6], "little"), head[6]
            part = file.read(length)
            if len(part) < length:
                return
            position += HEADER_BYTES + length
            parts = part if kind in (_WHOLE, _FIRST) else parts + part
            if kind in (_WHOLE, _LAST):
                yield parts, position
                parts = b""
                tell(path, position, size)
            elif kind != _FIRST and kind != _MIDDLE:
                return  # only zeros, or damage
            if len(parts) > RECORD_BYTES_MAX:
                return


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each bytes field in a protobuf message. Skips other fields."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _BYTES:
            length, position = _varint(message, position)
            yield key >> 3, message[position : position + length]
            position += length
        elif kind == 0:
            _, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
