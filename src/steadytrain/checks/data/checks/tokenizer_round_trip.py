"""Whether text survives the tokenizer."""

from __future__ import annotations

import unicodedata
from typing import ClassVar, final

from steadytrain.checks.data.data_check import (
    EXAMPLES_MAX,
    Circumstances,
    DataCheck,
    Example,
    Judgement,
    Part,
    excerpt,
    graded,
)

STRINGS_MAX = 1000
CHARACTERS_MAX = 2000
EVERY = 7
"""Samples every seventh row, so that the strings come from more than the first block."""

WARN_SHARE, FAIL_SHARE = 0.01, 0.1


@final
class TokenizerRoundTrip(DataCheck):
    """Text is the same after encoding and decoding.

    Means:
        The check encodes and decodes up to 1,000 strings and counts those that change. Normalised case, white space and
        Unicode forms are legitimate and counted separately (``normalised``); lost letters are not legitimate.

    Next:
        Read the decoded strings. The usual reasons are unknown tokens, or a decoder that does not fit the encoder.
    """

    reads: ClassVar[tuple[str, ...]] = ("texts",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._tried = self._exact = self._alike = 0
        self._examples: list[Example] = []

    def cannot(self) -> str | None:
        return "no --tokenizer" if self.circumstances.tokenizer is None else None

    def look(self, part: Part) -> None:
        assert part.texts is not None
        assert self.circumstances.tokenizer is not None
        if self._tried >= STRINGS_MAX:
            return
        chosen = [place for place, text in enumerate(part.texts) if (self._rows + place) % EVERY == 0 and text]
        chosen = chosen[: STRINGS_MAX - self._tried]
        self._rows += len(part.texts)
        texts = [part.texts[place][:CHARACTERS_MAX] for place in chosen]
        for place, text, ids in zip(chosen, texts, self.circumstances.tokenizer.bare(texts), strict=True):
            back = self.circumstances.tokenizer.decode(ids.tolist())
            self._tried += 1
            self._exact += back == text
            if back == text or normal(back) == normal(text):
                self._alike += 1
            elif len(self._examples) < EXAMPLES_MAX:
                row = part.rows[place]
                self._examples.append(Example(row.number, row.place, excerpt(text), f"came back as {excerpt(back)}"))

    def judge(self) -> Judgement:
        if not self._tried:
            return Judgement("not-run", "no text to try")
        lost = 1.0 - self._alike / self._tried
        numbers = {
            "strings": float(self._tried),
            "exact_share": self._exact / self._tried,
            "normalised": float(self._alike - self._exact),
            "lost_share": lost,
        }
        status = graded(lost, warn=WARN_SHARE, fail=FAIL_SHARE)
        message = f"{self._exact:,} of {self._tried:,} strings come back as they were"
        if self._alike > self._exact:
            message += f", {self._alike - self._exact:,} with other case, spaces or forms"
        if lost:
            message += f"; {self._tried - self._alike:,} lose letters"
        return Judgement(status, message, numbers, self._examples)


def normal(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not letter.isspace() and not unicodedata.combining(letter))
