"""Rows of the input in which nothing counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, DROP_BATCH
from steadytrain.diagnosis.mask_signs import divides_by_little, empty_mask, pools_nothing, rows_of_empty_mask
from steadytrain.diagnosis.signs import (
    not_finite,
    ruled_out,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class EmptyInput(Cause):
    """A row of the input is all padding or masked out, so the model's mean over it is 0 / 0.

    Means:
        The model averages over the positions that its mask lets through: words, frames, neighbours, visits. A row whose
        mask selects nothing has a count of 0, and a sum of 0. A small number added to the count hides it: the mean is
        then 0, or large where the sum has a bias.

    Causes:
        - an empty text, a silent recording, a node without neighbours, a customer without history
        - tokens that are all unknown or stop words, and are filtered out
        - rows that are cut at the start, so that only padding is left

    Next:
        1. Look at the named rows: what is left of them after the filters and the cut?
        2. Leave empty rows out before the loader, and count them.
        3. Divide by the count, at least 1, and see what the model does with an empty row.
    """

    axis = "data"
    base_rate = 8.0
    rivals = ("no-supervised-tokens", "singular-operation", "bad-batch")
    expects = like(
        "data",
        persists=(*RATE_CUTS, "clip"),
        either=("safe-operation", "synthetic-batch"),
    )
    confirming = ("drop-batch",)
    spared = ("float32",)
    interventions = (
        DROP_BATCH,
        Intervention(
            "clamp-mask-count",
            5,
            "divide by the count of the mask, at least 1",
            code="pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)",
        ),
        Intervention(
            "leave-out-empty-rows",
            4,
            "leave out rows in which nothing counts, before the loader",
            code='dataset = [row for row in dataset if len(row["tokens"]) > 0]',
        ),
        CLEAN_ROWS,
    )
    grade = "B"
    source = "sentence-transformers mean pooling clamps its count at 1e-9 for this reason"

    def signature(self, case: Case) -> Signature:
        empty = empty_mask(case) if pools_nothing(case) else ""
        return Signature(
            (
                *when(
                    bool(empty) and (not_finite(case) or divides_by_little(case)),
                    CERTAIN,
                    empty,
                    "fact empty_masks",
                    invariant=True,
                ),
                *ruled_out(not empty, "the model takes no mean over a mask that selects nothing", "fact empty_masks"),
            ),
            batch_rows=rows_of_empty_mask(case) if empty else (),
        )
