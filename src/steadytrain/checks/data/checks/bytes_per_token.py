"""How much text a token covers."""

from __future__ import annotations

from typing import ClassVar, final

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Judgement, Part

LOW = 1.6
"""Tokenizers with 32,000 tokens or more have 2.5 to 5 bytes per token on text that they were made for."""

SMALL_VOCABULARY = 4096
"""Tokenizers of letters or bytes, and very small ones, have about one byte per token by design."""

TOKENS_MIN = 1000


@final
class BytesPerToken(DataCheck):
    """A token covers several bytes of text.

    Means:
        Near one byte a token, a large vocabulary is useless: the text is of a language or kind that the tokenizer was
        not made for, or was escaped or encoded twice. Sequences are then two to four times as long.

    Next:
        Read some tokens of a row. Compare with the number for text that the tokenizer fits.
    """

    reads: ClassVar[tuple[str, ...]] = ("texts", "tokens")

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._bytes = self._tokens = 0

    def look(self, part: Part) -> None:
        assert part.texts is not None
        assert part.tokens is not None
        self._bytes += sum(
            len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in part.texts
        )
        self._tokens += len(part.tokens.values)

    def judge(self) -> Judgement:
        if self._tokens < TOKENS_MIN:
            return Judgement("not-run", f"{self._tokens:,} tokens; at least {TOKENS_MIN:,} are judged")
        each = self._bytes / self._tokens
        numbers = {"bytes": float(self._bytes), "tokens": float(self._tokens), "bytes_per_token": each}
        small = (self.circumstances.vocabulary or 0) < SMALL_VOCABULARY
        low = each < LOW and not small
        return Judgement("warn" if low else "pass", f"{each:.2f} bytes a token", numbers)
