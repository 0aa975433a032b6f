"""How often each token comes, and what a guess that knows only that costs."""

from __future__ import annotations

import math
from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Judgement, Part

VOCABULARY_MAX = 1 << 21
LARGEST_SHARE_MAX = 0.5
TOKENS_MIN = 1000


@final
class TokenFrequencies(DataCheck):
    """No token makes up most of the data.

    Means:
        A guess costs the entropy of single tokens: a language model whose loss stays there has learned which tokens are
        frequent and nothing of their order. A token at more than half of all positions is padding or filler:
        the loss then starts low and means little.

    Next:
        Compare the loss with the baseline. Mask filler in the loss, or remove it from the data.
    """

    reads: ClassVar[tuple[str, ...]] = ("tokens",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._counts = np.zeros(0, np.int64)

    def look(self, part: Part) -> None:
        assert part.tokens is not None
        values = part.tokens.values
        values = values[(values >= 0) & (values < VOCABULARY_MAX)]
        if not len(values):
            return
        counts = np.bincount(values, minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def judge(self) -> Judgement:
        total = int(self._counts.sum())
        if total < TOKENS_MIN:
            return Judgement("not-run", f"{total:,} tokens; at least {TOKENS_MIN:,} are judged")
        shares = self._counts[self._counts > 0] / total
        entropy = float(-(shares * np.log(shares)).sum())
        most = int(self._counts.argmax())
        share = float(self._counts[most]) / total
        numbers = {
            "tokens": float(total),
            "used": float(len(shares)),
            "baseline_loss": entropy,
            "largest_share": share,
            "uniform_loss": math.log(max(self.circumstances.vocabulary or len(self._counts), 1)),
        }
        message = f"{len(shares):,} different tokens; their frequencies alone cost {entropy:.3f} nats"
        if share > LARGEST_SHARE_MAX:
            return Judgement("warn", f"token {most} is in {share:.1%} of all places; {message}", numbers)
        return Judgement("pass", message, numbers)
