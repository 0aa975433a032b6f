"""Bytes of a file, packed or not, and its lines: a part at a time and never whole."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from steadytrain.data_checks.contract import Tell
from steadytrain.errors import UsageError

HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 22
LINE_BYTES_MAX = 1 << 26
"""The rest of a longer line is passed over."""

GZIP = b"\x1f\x8b"


def head_of(path: Path) -> bytes:
    """The beginning of a file, unpacked.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    if head.startswith(GZIP):
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    return head


def lines_of(path: Path, tell: Tell) -> Iterator[list[tuple[int, bytes]]]:
    """The lines of a file with their numbers from 1, some megabytes at a time, without line ends.

    Raises:
        UsageError: it cannot be read, or is packed and cut off.
    """
    number, rest, passed_over = 1, b"", False
    for block in _blocks(path, tell):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if passed_over and lines:
            lines, passed_over = lines[1:], False
        found = [(number + place, line.rstrip(b"\r")) for place, line in enumerate(lines)]
        number += len(lines)
        if len(rest) >= LINE_BYTES_MAX:
            if not passed_over:
                found.append((number, rest[:LINE_BYTES_MAX]))
                number += 1
            rest, passed_over = b"", True
        yield found
    if rest and not passed_over:
        yield [(number, rest.rstrip(b"\r"))]


def _blocks(path: Path, tell: Tell) -> Iterator[bytes]:
    try:
        size = path.stat().st_size
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            file: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            while block := file.read(BLOCK_BYTES):
                yield block
                tell(path.name, raw.tell(), size)
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path}: packed, and cut off or damaged ({error}); write it again") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
