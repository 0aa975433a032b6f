"""Characters that are not text."""

from __future__ import annotations

import re
from typing import ClassVar, final

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part, graded

WARN_SHARE, FAIL_SHARE = 0.001, 0.05

_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""Control characters except tab, line and page breaks and escape (colours in logs); lone surrogates; noncharacters."""


@final
class ControlCharacters(DataCheck):
    """Text holds no control characters.

    Means:
        NUL and other control characters, lone surrogates and noncharacters come from binary files and broken
        converters. Many tokenizers spend several tokens on each, and some fail.

    Next:
        Strip them where the data is made, and check the rest of these rows.
    """

    reads: ClassVar[tuple[str, ...]] = ("texts",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._hit = 0
        self._examples = Examples()

    def look(self, part: Part) -> None:
        assert part.texts is not None
        self._rows += len(part.texts)
        # Most text is printable and has none, and ``isprintable`` is faster than a search.
        hits = [place for place, text in enumerate(part.texts) if not text.isprintable() and _CONTROL.search(text)]
        self._hit += len(hits)
        self._examples.add(part, hits, "control characters")

    def judge(self) -> Judgement:
        share = self._hit / max(self._rows, 1)
        numbers = {"rows": float(self._rows), "with_control": float(self._hit), "share": share}
        if not self._hit:
            return Judgement("pass", "no control characters", numbers)
        status = graded(share, warn=WARN_SHARE, fail=FAIL_SHARE)
        return Judgement(
            status, f"{self._hit:,} of {self._rows:,} rows hold control characters", numbers, self._examples.kept
        )
