"""Class weights the wrong way round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

SAID = {
    "weights-as-counts": "weights common classes more than rare ones, the most common {:.3g} times as much as the "
    "rarest: weights that balance are the inverse",
    "pos-weight-as-odds": "has a pos_weight of {:.3g}, about positives over negatives: rare positives count even less. "
    "It should be negatives over positives",
}
"""Measures of the table ``script``, and what the loss does there."""


@final
@dataclass(frozen=True)
class InvertedWeights(ScriptRule):
    """The loss weights classes by how common they are, and so makes their imbalance worse.

    Means:
        The weights of a cross-entropy grow with the counts of the labels seen, over all classes; or `pos_weight` is
        near the ratio of positives to negatives while positives are rare. What was meant to balance the classes
        squares their imbalance: rare classes are hardly learned. Weights that are equal, the inverse of the counts, or
        of no relation to them are left alone, and so are labels that are balanced.

    Causes:
        - `weight=counts / counts.sum()`, where `counts.sum() / counts` is meant
        - `pos_weight = positives / negatives`

    Next:
        1. `weight = counts.sum() / (len(counts) * counts)`, or the root of it.
        2. `pos_weight = negatives / positives`.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(window, row, f"the loss of {row.place} {said.format(row.last)}", weight=row.last)
            for measure, said in SAID.items()
            for row in script_rows(window, measure)
            if len(row.steps) >= self.looks_min
        )[:1]
