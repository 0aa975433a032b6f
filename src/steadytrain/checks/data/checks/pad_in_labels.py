"""Padding that is learned."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part


@final
class PadInLabels(DataCheck):
    """Padding does not count in the loss.

    Means:
        Labels hold the padding id where they should be -100. The model learns to predict padding: the loss looks better
        than it is, and the longer the padding, the less the real tokens weigh.

    Next:
        Set labels to -100 where the attention mask is 0: by position, because padding is often the same token as the
        end of a sequence, whose labels must stay.
    """

    reads: ClassVar[tuple[str, ...]] = ("labels",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._pads = self._labels = self._rows = 0
        self._examples = Examples()

    def cannot(self) -> str | None:
        tokenizer = self.circumstances.tokenizer
        if tokenizer is None:
            return "the id of the padding token is not known (--tokenizer)"
        return None if tokenizer.pad is not None else "the tokenizer has no padding token"

    def look(self, part: Part) -> None:
        labels, tokenizer = part.labels, self.circumstances.tokenizer
        assert labels is not None
        assert tokenizer is not None
        pads = labels.values == tokenizer.pad
        attention = part.attention
        if tokenizer.pad == tokenizer.eos:
            if attention is not None and np.array_equal(attention.offsets, labels.offsets):
                pads &= attention.values == 0
            else:
                # The first of a run ends the sequence; the others are padding.
                pads[1:] &= labels.values[:-1] == tokenizer.pad
                pads[labels.offsets[:-1][labels.lengths > 0]] = False
        self._labels += len(labels.values)
        self._pads += int(pads.sum())
        rows = np.flatnonzero(labels.counts(pads))
        self._rows += len(rows)
        self._examples.add(part, rows, "padding is a label")

    def judge(self) -> Judgement:
        share = self._pads / max(self._labels, 1)
        numbers = {"labels": float(self._labels), "pads": float(self._pads), "share": share, "rows": float(self._rows)}
        if self._pads:
            message = f"{share:.1%} of the labels are padding, in {self._rows:,} rows"
            return Judgement("fail", message, numbers, self._examples.kept)
        return Judgement("pass", "no padding among the labels", numbers)
