"""Read the bytes and lines of a file, compressed or not, in parts."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from steadytrain.checks.data.data_check import Tell
from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install

HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 26
"""The rest of a longer line is skipped."""

GZIP, BZIP2, XZ, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
ZIP = b"PK\x03\x04"


def head_of(path: Path) -> bytes:
    """The decompressed beginning of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not head.startswith((GZIP, BZIP2, XZ, ZSTD)):
        return head
    with _unpacked(path, head) as (file, _):
        try:
            return bytes(file.read(HEAD_BYTES))
        except DAMAGED as error:
            raise _damage(path, error) from None


def lines_of(path: Path, tell: Tell) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines of a file with their numbers from 1, some megabytes at a time, without line ends.

    Raises:
        UsageError: the file cannot be read, or is compressed and truncated.
    """
    number, rest, passed_over = 1, b"", False
    for block in blocks_of(path, tell):
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


def blocks_of(path: Path, tell: Tell) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, some megabytes at a time.

    Raises:
        UsageError: the file cannot be read, or is compressed and truncated.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as raw:
            head = raw.read(len(XZ))
        with _unpacked(path, head) as (file, raw):
            while block := file.read(BLOCK_BYTES):
                yield block
                tell(path.name, raw.tell() if raw is not None else 0, size if raw is not None else 0)
    except DAMAGED as error:
        raise _damage(path, error) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None


DAMAGED = (EOFError, zlib.error, lzma.LZMAError, ValueError)


def _damage(path: Path, error: Exception) -> UsageError:
    return UsageError(f"{path}: packed, and cut off or damaged ({error}); write it again")


@contextmanager
def _unpacked(path: Path, head: bytes) -> Iterator[tuple[Any, IO[bytes] | None]]:
    """The decompressed file, and the raw one if its position shows the progress."""
    if head.startswith(ZIP):
        raise UsageError(f"{path}: a zip archive; unpack it and name what is in it")
    if head.startswith(ZSTD):
        try:
            import pyarrow
        except ImportError:
            raise UsageError(f"{path}: packed by zstd; reading it needs `{install('data')}`") from None
        with pyarrow.input_stream(str(path), compression="zstd") as stream:
            yield stream, None
        return
    with open_regular(path) as raw:
        if head.startswith(GZIP):
            with gzip.GzipFile(fileobj=raw) as file:
                yield file, raw
        elif head.startswith(BZIP2):
            with bz2.BZ2File(raw) as packed:
                yield packed, raw
        elif head.startswith(XZ):
            with lzma.LZMAFile(raw) as tight:
                yield tight, raw
        else:
            yield raw, raw
