"""Read text of any common encoding in parts."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from steadytrain.core.bounded_files import check_json, open_regular, read_bytes
from steadytrain.core.errors import UsageError
from steadytrain.logs.reader import Tell

HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 24
LINE_LENGTH_MAX = 20_000
"""The rest of a longer line is skipped: no line of numbers is that long, and a file without line ends is not a log."""

DOCUMENT_BYTES_MAX = 1 << 28
"""Size limit of a JSON document, which is held in memory as bytes and as text."""

_TEXT_SHARE_MIN = 0.9
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_PACKED = ((b"\x1f\x8b", "gzip"), (b"PK\x03\x04", "zip"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstandard"))


def head_of(path: Path) -> bytes:
    """The beginning of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None


def encoding_of(head: bytes) -> str:
    return next((name for mark, name in _BOMS if head.startswith(mark)), "utf-8")


def text_of(head: bytes) -> str:
    """``head`` as text with plain line ends. A truncated end may be garbled."""
    text = head.decode(encoding_of(head), errors="replace")
    return without_colours(text).replace("\r\n", "\n").replace("\r", "\n")


def packed_as(head: bytes) -> str | None:
    """The compression of a file that begins with ``head``, None if there is none."""
    return next((name for mark, name in _PACKED if head.startswith(mark)), None)


def is_text(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is text: no NUL bytes, and nearly all of it printable."""
    if encoding_of(head) == "utf-16":
        return True
    if b"\x00" in head:
        return False
    # Bytes above 127 are not counted: they are letters in UTF-8 and in old encodings alike.
    odd = sum(head.count(code) for code in range(32) if code not in (7, 8, 9, 10, 12, 13, 27))
    return not head or 1 - odd / len(head) >= _TEXT_SHARE_MIN


def without_colours(text: str) -> str:
    """``text`` without the escape sequences of a terminal."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def blocks(path: Path, tell: Tell) -> Iterator[list[str]]:
    """Yield the lines of a text file, some megabytes at a time. A carriage return ends a line like a newline.

    Raises:
        UsageError: the file cannot be read.
    """
    encoding = encoding_of(head_of(path))
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    rest = ""
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            while raw := file.read(BLOCK_BYTES):
                text = rest + decoder.decode(raw)
                lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
                rest = lines.pop()[:LINE_LENGTH_MAX] if len(lines) > 1 or len(text) < LINE_LENGTH_MAX else ""
                yield lines
                tell(path, file.tell(), size)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    if rest:
        yield [rest]


def document_text(path: Path) -> str:
    """The text of a whole file.

    Raises:
        UsageError: the file cannot be read or is too large.
    """
    try:
        size = path.stat().st_size
        if size > DOCUMENT_BYTES_MAX:
            raise UsageError(
                f"{path}: a JSON document of {size / 2**20:,.0f} MiB; at most {DOCUMENT_BYTES_MAX >> 20} MiB are read. "
                "Write it as JSON Lines or CSV"
            )
        raw = read_bytes(path, bytes_max=DOCUMENT_BYTES_MAX)
        check_json(raw, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    return raw.decode(encoding_of(raw), errors="replace")
