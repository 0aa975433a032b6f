"""Two beginnings of a sequence."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part, graded

FAIL_SHARE = 0.01


@final
class DoubleBos(DataCheck):
    """No row begins with two beginning-of-sequence tokens.

    Means:
        The chat template writes a beginning token into the text, and the tokenizer adds another. The model never saw
        that in pre-training and will not see it in use: the loss starts too high, and answers get worse.

    Next:
        Tokenize the output of a template with add_special_tokens=False.
    """

    reads: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._double = 0
        self._examples = Examples()

    def cannot(self) -> str | None:
        tokenizer = self.circumstances.tokenizer
        if tokenizer is None:
            return "the id of the beginning-of-sequence token is not known (--tokenizer)"
        if tokenizer.bos is None:
            return "the tokenizer has no beginning-of-sequence token"
        return "beginning and padding are the same token" if tokenizer.bos == tokenizer.pad else None

    def look(self, part: Part) -> None:
        tokens, tokenizer = part.tokens, self.circumstances.tokenizer
        assert tokens is not None
        assert tokenizer is not None
        starts = np.flatnonzero(tokens.values[:-1] == tokenizer.bos)
        pairs = starts[tokens.values[starts + 1] == tokenizer.bos]
        owners = np.searchsorted(tokens.offsets, pairs, side="right") - 1
        # Only a token at the start, or after padding, is a beginning: documents may be joined by the same token, used
        # as an end.
        first = tokens.offsets[owners]
        leading = [
            owner
            for owner, begin, pair in zip(owners.tolist(), first.tolist(), pairs.tolist(), strict=True)
            if pair + 1 < tokens.offsets[owner + 1] and (tokens.values[begin:pair] == tokenizer.pad).all()
        ]
        places = sorted(set(leading))
        self._rows += len(tokens)
        self._double += len(places)
        self._examples.add(part, places, "two beginnings")

    def judge(self) -> Judgement:
        share = self._double / max(self._rows, 1)
        numbers = {"rows": float(self._rows), "double": float(self._double), "share": share}
        if not self._double:
            return Judgement("pass", "no row begins twice", numbers)
        status = graded(share, warn=0.0, fail=FAIL_SHARE)
        return Judgement(
            status,
            f"{self._double:,} of {self._rows:,} rows begin with two beginning-of-sequence tokens",
            numbers,
            self._examples.kept,
        )
