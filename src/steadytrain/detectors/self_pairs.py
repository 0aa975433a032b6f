"""A contrastive loss that compares rows with themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

SAID = {
    "own-row": "has each row among its own wrong choices: the diagonal of the scores is not masked, and the row's "
    "likeness to itself beats its partner",
    "equal-views": "compares two views that are equal: each row finds its partner without having learned anything",
}
"""Measures of the table ``script``, and what the loss does there."""


@final
@dataclass(frozen=True)
class SelfPairs(ScriptRule):
    """A contrastive loss has a row's own copy among the choices, or its two views are equal.

    Means:
        The scores behind the softmax are the product of a batch with itself. If the right choice is another row, the
        row itself is a wrong choice that always has the largest score: the loss stays high, and the model learns to
        make all rows alike. If the right choice is the row's copy, both views were made equal, and the loss is low from
        the start for any model. Scores of two networks, or with a masked diagonal and two different views, are left
        alone.

    Causes:
        - `z @ z.T` in the softmax without `fill_diagonal_(-inf)`
        - one augmentation that is used twice, `v2 = v1`
        - a siamese network that gets the same rows on both sides, without dropout

    Next:
        1. Mask the diagonal: `scores.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)`.
        2. Call the augmentation once for each view, and assert that they differ.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(window, row, f"the loss of {row.place} {said}", rows=row.last)
            for measure, said in SAID.items()
            for row in script_rows(window, measure)
            if len(row.steps) >= self.looks_min
        )[:1]
