"""Text that went through a wrong encoding."""

from __future__ import annotations

import re
from typing import ClassVar, final

from steadytrain.checks.data.data_check import (
    Circumstances,
    DataCheck,
    Example,
    Examples,
    Judgement,
    Part,
    excerpt,
    graded,
)

WARN_SHARE, FAIL_SHARE = 0.0005, 0.01

_TWICE = re.compile(r"Ã[\x80-\xbf©¨¼¶¤±§¡]|â€[\u2122\u0153\u009d\u201c\u201d™œ¢¦]|Â[\xa0«»°£]|ðŸ")
"""UTF-8 decoded as Latin-1 or Windows-1252: accented letters begin with Ã, quotation marks with â€."""


@final
class TextEncoding(DataCheck):
    """Text is valid UTF-8, decoded exactly once.

    Means:
        Rows hold bytes that are not UTF-8, replacement characters (U+FFFD) for such bytes, or letters from UTF-8
        decoded with another encoding. The model learns them like words.

    Next:
        Read the originals again with the right encoding. Replaced characters cannot be recovered.
    """

    reads: ClassVar[tuple[str, ...]] = ("texts",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._bytes = self._replaced = self._twice = self._hit = 0
        self._examples = Examples()

    def look(self, part: Part) -> None:
        assert part.texts is not None
        self._rows += len(part.every)
        for row in part.every:
            if row.odd_bytes and row.fields is None:
                self._bytes += 1
                self._hit += 1
                if len(self._examples.kept) < 5:
                    self._examples.kept.append(Example(row.number, row.place, excerpt(row.broken), "no UTF-8"))
        for place, (row, text) in enumerate(zip(part.rows, part.texts, strict=True)):
            if text.isascii() and not row.odd_bytes:
                continue
            why = ""
            if row.odd_bytes:
                self._bytes += 1
                why = "bytes that are no UTF-8"
            elif "\ufffd" in text:
                self._replaced += 1
                why = "replacement characters"
            elif _TWICE.search(text):
                self._twice += 1
                why = "UTF-8 read as another encoding"
            if why:
                self._hit += 1
                self._examples.add(part, [place], why)

    def judge(self) -> Judgement:
        share = self._hit / max(self._rows, 1)
        numbers = {
            "rows": float(self._rows),
            "not_utf8": float(self._bytes),
            "replaced": float(self._replaced),
            "read_twice": float(self._twice),
            "share": share,
        }
        if not self._hit:
            return Judgement("pass", "all text is UTF-8", numbers)
        told = f"{self._bytes:,} rows are no UTF-8, {self._replaced:,} hold replacement characters, {self._twice:,} "
        told += "look as if read in another encoding"
        fails = bool(self._bytes)
        status = "fail" if fails else graded(share, warn=WARN_SHARE, fail=FAIL_SHARE)
        return Judgement(status, told, numbers, self._examples.kept)
