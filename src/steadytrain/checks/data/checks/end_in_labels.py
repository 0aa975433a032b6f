"""Whether the end of a sequence is learned."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import IGNORED, Circumstances, DataCheck, Examples, Judgement, Part

FULL_LENGTH_SHARE = 0.9
"""If this share of the rows has one length, they are blocks cut from a long text, and most end in the middle."""


@final
class EndInLabels(DataCheck):
    """The end-of-sequence token counts in the loss.

    Means:
        No label is the end of a sequence: a model trained on these rows never stops generating. The usual reason:
        padding uses the end token, and labels are masked by its value.

    Next:
        Append the end to every answer, and mask padding by position, not by value.
    """

    reads: ClassVar[tuple[str, ...]] = ("labels", "tokens")

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._with_end = self._masked_end = self._full = 0
        self._longest = 0
        self._examples = Examples()

    def cannot(self) -> str | None:
        tokenizer = self.circumstances.tokenizer
        if tokenizer is None:
            return "the id of the end-of-sequence token is not known (--tokenizer)"
        return None if tokenizer.eos is not None else "the tokenizer has no end-of-sequence token"

    def look(self, part: Part) -> None:
        labels, tokens, tokenizer = part.labels, part.tokens, self.circumstances.tokenizer
        assert labels is not None
        assert tokens is not None
        assert tokenizer is not None
        ends = labels.counts(labels.values == tokenizer.eos)
        learned = labels.counts(labels.values != IGNORED) > 0
        in_tokens = tokens.counts(tokens.values == tokenizer.eos)
        self._rows += int(learned.sum())
        self._with_end += int((ends > 0).sum())
        masked = (ends == 0) & (in_tokens > 0) & learned
        self._masked_end += int(masked.sum())
        self._examples.add(part, np.flatnonzero((ends == 0) & learned), "its end is no label")
        longest = int(tokens.lengths.max(initial=0))
        if longest > self._longest:
            self._longest, self._full = longest, 0
        self._full += int((tokens.lengths == self._longest).sum())

    def judge(self) -> Judgement:
        if not self._rows:
            return Judgement("not-run", "no row has labels that count")
        share = self._with_end / self._rows
        numbers = {"rows": float(self._rows), "share": share, "masked": float(self._masked_end)}
        if self._with_end:
            return Judgement("pass", f"{share:.1%} of the rows have an end of sequence that counts", numbers)
        if not self._masked_end and self._full >= FULL_LENGTH_SHARE * self._rows:
            return Judgement("not-run", "rows are blocks of one length without any end of sequence", numbers)
        why = ", though it is among the tokens" if self._masked_end else ""
        return Judgement("fail", f"no label is the end of a sequence{why}", numbers, self._examples.kept)
