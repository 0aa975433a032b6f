"""Text that the tokenizer has no tokens for."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part, graded

WARN_SHARE, FAIL_SHARE = 0.001, 0.02


@final
class UnknownTokens(DataCheck):
    """Hardly any token is the unknown token.

    Means:
        Text that the tokenizer does not know (another script, emoji, code) becomes one and the same token and is lost.
        If that is much of the text, the tokenizer does not fit the data.

    Next:
        Find what is lost in the decoded rows. Use a tokenizer that knows the script, or that falls back to bytes.
    """

    reads: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._tokens = self._unknown = 0
        self._examples = Examples()

    def cannot(self) -> str | None:
        tokenizer = self.circumstances.tokenizer
        if tokenizer is None:
            return "no --tokenizer"
        if tokenizer.unk is None or tokenizer.unk in (tokenizer.bos, tokenizer.eos):
            return "the tokenizer has no unknown token of its own"
        return None

    def look(self, part: Part) -> None:
        assert part.tokens is not None
        assert self.circumstances.tokenizer is not None
        unknown = part.tokens.values == self.circumstances.tokenizer.unk
        self._tokens += len(unknown)
        self._unknown += int(unknown.sum())
        if unknown.any():
            self._examples.add(part, np.flatnonzero(part.tokens.counts(unknown)), "has unknown tokens")

    def judge(self) -> Judgement:
        share = self._unknown / max(self._tokens, 1)
        numbers = {"tokens": float(self._tokens), "unknown": float(self._unknown), "share": share}
        status = graded(share, warn=WARN_SHARE, fail=FAIL_SHARE)
        return Judgement(status, f"{share:.2%} of the tokens are unknown", numbers, self._examples.kept)
