"""Rows that nothing is learned from."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import IGNORED, Circumstances, DataCheck, Examples, Judgement, Part

FAIL_SHARE = 0.05
"""If one row in twenty has no target, a batch of four has only such rows once in 160,000 batches, and the mean is
biased.
"""


@final
class SupervisedTokens(DataCheck):
    """Every row has tokens that count in the loss.

    Means:
        In these rows all labels are -100, or the prompt alone fills the length so that the answer is cut off, or the
        attention mask is all zero. A batch of them has a mean over zero targets: the loss is NaN, or 0.0 if a trainer
        hides that.

    Next:
        Read the decoded rows: do they contain the response template, tokenized in the same way? Does the length suffice
        for prompt and answer? Drop the rows, or cut prompts from the left.
    """

    reads: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._without = self._masked = self._uneven = 0
        self._supervised = self._tokens = 0
        self._looked = False
        self._examples = Examples()

    def look(self, part: Part) -> None:
        tokens = part.tokens
        assert tokens is not None
        lengths = tokens.lengths
        if self.circumstances.length is not None:
            lengths = np.minimum(lengths, self.circumstances.length)
        if part.labels is not None:
            self._look_at_labels(part)
        elif part.prompts is not None:
            learned = np.maximum(lengths - part.prompts, 0)
            self._count(part, learned, lengths, "the prompt alone fills the length, or there is no answer")
        if part.attention is not None:
            self._looked = True
            attended = part.attention.counts(part.attention.values != 0)
            masked = np.flatnonzero((attended == 0) & (part.attention.lengths > 0))
            self._masked += len(masked)
            self._examples.add(part, masked, "the attention mask is all zero")

    def _look_at_labels(self, part: Part) -> None:
        labels, tokens = part.labels, part.tokens
        assert labels is not None
        assert tokens is not None
        counted = labels.values != IGNORED
        if self.circumstances.length is not None:
            places = np.arange(len(labels.values)) - np.repeat(labels.offsets[:-1], labels.lengths)
            counted &= places < self.circumstances.length
        uneven = np.flatnonzero((labels.lengths != tokens.lengths) & (labels.lengths > 0))
        self._uneven += len(uneven)
        self._examples.add(part, uneven, "another number of labels than of tokens")
        self._count(part, labels.counts(counted), tokens.lengths, "no label counts in the loss")

    def _count(
        self,
        part: Part,
        learned: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        lengths: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
        why: str,
    ) -> None:
        self._looked = True
        self._rows += len(learned)
        self._supervised += int(learned.sum())
        self._tokens += int(lengths.sum())
        without = np.flatnonzero(learned == 0)
        self._without += len(without)
        self._examples.add(part, without, why)

    def judge(self) -> Judgement:
        if not self._looked:
            return Judgement(
                "not-run", "no labels by token, prompts are not marked apart from answers, no attention mask"
            )
        share = self._without / max(self._rows, 1)
        numbers = {
            "rows": float(self._rows),
            "without": float(self._without),
            "share": share,
            "supervised_share": self._supervised / max(self._tokens, 1),
            "all_masked": float(self._masked),
            "uneven": float(self._uneven),
        }
        told = []
        if self._uneven:
            told.append(f"{self._uneven:,} rows have another number of labels than of tokens")
        if self._masked:
            told.append(f"{self._masked:,} rows have an attention mask of zeros")
        if self._without:
            told.append(f"{self._without:,} of {self._rows:,} rows ({share:.1%}) have no token that counts in the loss")
        if told:
            fails = self._uneven or self._masked or share >= FAIL_SHARE
            return Judgement("fail" if fails else "warn", "; ".join(told), numbers, self._examples.kept)
        return Judgement("pass", f"{numbers['supervised_share']:.1%} of the tokens count, some in every row", numbers)
