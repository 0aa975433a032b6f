"""Text that was written as JSON or HTML once too often."""

from __future__ import annotations

import re
from typing import ClassVar, final

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part, graded

PER_CHARACTERS_MIN = 0.002
ESCAPES_MIN = 5
WARN_SHARE, FAIL_SHARE = 0.02, 0.3
"""Code and text about code contain escapes. If a third of all rows have many, the text was escaped twice."""

_ESCAPES = re.compile(r"\\[nrt\"]|\\u[0-9a-fA-F]{4}|&(?:amp|lt|gt|quot|nbsp|#39|#x27);")


@final
class EscapedText(DataCheck):
    r"""Text is not full of escape sequences.

    Means:
        Rows hold ``\\n``, ``\\u00e9`` or ``&amp;`` as letters: they were escaped twice and unescaped once. Such text is
        easy to predict. OPT's training data had escaped text in part of it, and its loss there was unreasonably low.

    Next:
        Unescape where the data is made, and compare the loss on these rows with that on others.
    """

    reads: ClassVar[tuple[str, ...]] = ("texts",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._hit = 0
        self._examples = Examples()

    def look(self, part: Part) -> None:
        assert part.texts is not None
        self._rows += len(part.texts)
        hits = []
        for place, text in enumerate(part.texts):
            if "\\" not in text and "&" not in text:
                continue
            count = len(_ESCAPES.findall(text))
            if count >= ESCAPES_MIN and count >= PER_CHARACTERS_MIN * len(text):
                hits.append(place)
        self._hit += len(hits)
        self._examples.add(part, hits, "escape sequences as text")

    def judge(self) -> Judgement:
        share = self._hit / max(self._rows, 1)
        numbers = {"rows": float(self._rows), "escaped": float(self._hit), "share": share}
        status = graded(share, warn=WARN_SHARE, fail=FAIL_SHARE)
        return Judgement(
            status, f"{self._hit:,} of {self._rows:,} rows hold many escape sequences", numbers, self._examples.kept
        )
