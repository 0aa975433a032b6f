"""Ids that the embedding has no row for."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import IGNORED, Circumstances, DataCheck, Examples, Judgement, Part

ZERO_SHARE_OF_WIDER = 0.45
"""32-bit tokens read as 16-bit ones alternate between a token and a zero."""


@final
class IdsInRange(DataCheck):
    """Every token id is at least 0 and below the size of the vocabulary.

    Means:
        An id at or above the number of embedding rows ends a GPU run with a device-side assert, or reads other memory.
        Negative ids are labels or padding in the wrong field. Zeros at every second position mean that a file of wider
        numbers was read as narrower ones.

    Next:
        Use the model's own tokenizer, or enlarge the embedding. For a .bin file, see --dtype.
    """

    reads: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._largest, self._least, self._tokens, self._outside = -1, 0, 0, 0
        self._odd = self._odd_zeros = self._even_zeros = 0
        self._examples = Examples()

    def look(self, part: Part) -> None:
        tokens = part.tokens
        assert tokens is not None
        values = tokens.values
        if not len(values):
            return
        self._tokens += len(values)
        self._largest = max(self._largest, int(values.max()))
        self._least = min(self._least, int(values.min()))
        self._odd += len(values) // 2
        self._odd_zeros += int((values[1::2] == 0).sum())
        self._even_zeros += int((values[::2] == 0).sum())
        size = self.circumstances.vocabulary
        outside = values < 0
        if size is not None:
            outside |= values >= size
        if part.labels is not None:
            labels = part.labels.values
            wrong = (labels < 0) & (labels != IGNORED)
            if size is not None:
                wrong |= labels >= size
            self._outside += int(wrong.sum())
            if wrong.any():
                self._examples.add(part, np.flatnonzero(part.labels.counts(wrong)), "label out of range")
        if outside.any():
            self._outside += int(outside.sum())
            self._examples.add(part, np.flatnonzero(tokens.counts(outside)), "id out of range")

    def judge(self) -> Judgement:
        size = self.circumstances.vocabulary
        numbers = {
            "largest": float(self._largest),
            "least": float(self._least),
            "tokens": float(self._tokens),
            "out_of_range": float(self._outside),
        }
        zeros = (self._odd_zeros / max(self._odd, 1), self._even_zeros / max(self._odd, 1))
        if max(zeros) > 2 * ZERO_SHARE_OF_WIDER and min(zeros) < 0.1:
            return Judgement("fail", "every second id is 0: numbers of 32 bits were read as 16 (--dtype)", numbers)
        if self._outside:
            below = f"below {size:,}" if size is not None else "at least 0"
            message = f"{self._outside:,} ids or labels are not {below}: {self._least} to {self._largest:,}"
            return Judgement("fail", message, numbers, self._examples.kept)
        if size is None:
            return Judgement(
                "not-run", f"the size of the vocabulary is not known (--tokenizer); ids go up to {self._largest:,}"
            )
        return Judgement("pass", f"ids go from {self._least} to {self._largest:,}, of {size:,}", numbers)
