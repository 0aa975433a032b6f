"""A contrastive loss whose wrong answers are right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FalseNegatives(ScriptRule):
    """Many rows of a batch stand there more than once, in a loss that takes all other rows for wrong answers.

    Means:
        A loss over a batch asks for each row's own partner among all partners. If a partner stands there several times,
        its copies are as right as itself and count as wrong: the loss cannot fall below the logarithm of their number,
        and what belongs together is pushed apart.

    Causes:
        - data sorted by document, product or class, and read without shuffling
        - a catalogue that is small for the size of the batch
        - the same pair drawn several times, as with replacement

    Next:
        1. `shuffle=True`, or a sampler that takes each document once a batch.
        2. Mask equal partners: `logits.masked_fill(same & ~eye, -inf)`.
    """

    looks_min: int = threshold(4, "looks that find it")
    copied_share: float = threshold(
        0.3, "share of the rows that are copies, for a warning. A batch of 64 of 1,000 documents has 0.03"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"{row.last:.0%} of the rows that the loss of {row.place} tells apart are copies of others in "
                "the batch: right answers count as wrong ones",
                share=row.last,
            )
            for row in script_rows(window, "duplicate-positives")
            if len(row.steps) >= self.looks_min and (row.values >= self.copied_share).all()
        )[:1]
