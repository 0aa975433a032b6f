"""What a given length cuts off."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part

WARN_SHARE = 0.1
"""Share of the tokens. Chosen: below it cutting is usual, above it a longer context or packing is worth its cost."""


@final
class Truncation(DataCheck):
    """Few tokens are beyond --length.

    Means:
        Rows are longer than the context, and the model never learns the rest: the ends of documents, and the answers of
        conversations.

    Next:
        Split long rows instead of cutting them, or use a longer context. For prompts with answers, cut prompts only.
    """

    reads: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._long = self._tokens = self._cut = 0
        self._examples = Examples()

    def cannot(self) -> str | None:
        return "no length was given (--length)" if self.circumstances.length is None else None

    def look(self, part: Part) -> None:
        assert part.tokens is not None
        assert self.circumstances.length is not None
        lengths = part.tokens.lengths
        beyond = np.maximum(lengths - self.circumstances.length, 0)
        self._rows += len(lengths)
        self._tokens += int(lengths.sum())
        self._long += int((beyond > 0).sum())
        self._cut += int(beyond.sum())
        for place in np.flatnonzero(beyond)[: 5 - len(self._examples.kept)]:
            self._examples.add(part, [int(place)], f"{lengths[place]:,} tokens")

    def judge(self) -> Judgement:
        share = self._cut / max(self._tokens, 1)
        numbers = {
            "length": float(self.circumstances.length or 0),
            "rows_share": self._long / max(self._rows, 1),
            "tokens_share": share,
        }
        message = f"{self._long:,} of {self._rows:,} rows are cut, and {share:.1%} of the tokens"
        return Judgement("warn" if share > WARN_SHARE else "pass", message, numbers, self._examples.kept)
