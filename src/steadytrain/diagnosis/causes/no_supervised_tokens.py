"""Batches in which every label is ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, DROP_BATCH
from steadytrain.diagnosis.mask_signs import divides_by_little, empty_mask, pools_nothing, rows_of_empty_mask
from steadytrain.diagnosis.signs import (
    above,
    fact,
    located,
    measured,
    not_finite,
    operation,
    ruled_out,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.core.incident import Located
    from steadytrain.experiments.case import Case


@final
class NoSupervisedTokens(Cause):
    """Rows or whole batches have no label that counts, so their loss is a mean over nothing.

    Means:
        All labels are the ignored index. Cross entropy with the mean over zero terms is NaN since torch 1.11 (pytorch
        #70348). If only some rows are empty, the run silently trains on less data.

    Causes:
        - a response template that the tokenizer does not find, often by one space (trl #1920)
        - completions cut off at the maximum length
        - padding with the id of the end token, so that both are masked
        - a mask that selects nothing in a row: `(loss * mask).sum() / mask.sum()` is 0 / 0

    Next:
        1. Decode the labels of the named rows that are not ignored.
        2. Drop rows without a supervised token before the loader, and count them.
        3. Sum the loss and divide by the count of labels, at least 1.
    """

    axis = "data"
    base_rate = 16.0
    rivals = ("singular-operation", "padding-in-loss", "bad-batch", "empty-input")
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
            "clamp-count",
            5,
            "divide by the count of the mask, at least 1: `mask.sum().clamp(min=1)`",
            code="loss = (losses * mask).sum() / mask.sum().clamp(min=1)",
        ),
        Intervention(
            "filter-unsupervised",
            4,
            "drop rows without a supervised label before the loader",
            code='dataset = [row for row in dataset if any(label != -100 for label in row["labels"])]',
        ),
        CLEAN_ROWS,
    )
    grade = "A"
    source = "trl #6668, #1920, #1053; transformers #27733; pytorch #70348"

    def signature(self, case: Case) -> Signature:
        empty, found = empty_mask(case), located(case)
        ignored = found is not None and _all_ignored(found)
        return Signature(
            (
                *when(
                    bool(empty) and not pools_nothing(case) and (not_finite(case) or divides_by_little(case)),
                    CERTAIN,
                    empty,
                    "fact empty_masks",
                    invariant=True,
                ),
                *operation(
                    case,
                    CERTAIN,
                    "{operation} at {line} got targets that are all the ignored index, so its mean is over nothing",
                    _all_ignored,
                    invariant=True,
                ),
                *above(
                    case,
                    "labels_ignored_share",
                    0.999999,
                    CERTAIN,
                    "every label of the batch is the ignored index",
                    invariant=True,
                ),
                *above(
                    case,
                    "rows_without_labels_share",
                    0.2,
                    STRONG if _of_tokens(case) else HINT,
                    "{value} of all rows have no label that counts",
                    invariant=_of_tokens(case),
                ),
                *above(
                    case,
                    "labels_ignored_share_usual",
                    0.98,
                    FAIR,
                    "{value} of all labels are ignored in the usual batch",
                ),
                *symptom(case, STRONG if _of_tokens(case) else HINT, "rows-without-labels"),
                *ruled_out(
                    not empty
                    and not ignored
                    and measured(case, "labels_ignored_share") == 0.0
                    and not measured(case, "rows_without_labels_share") > 0,
                    "no label is ignored",
                ),
                *when(
                    surveyed(case) and not empty and not ignored and fact(case, "labels_ignored_share") is None,
                    -FAIR,
                    "no ignored labels were seen",
                    "facts",
                ),
            ),
            batch_rows=rows_of_empty_mask(case) or _rows(case),
        )


def _of_tokens(case: Case) -> bool:
    """Whether labels are tokens of the input. Other annotations may be sparse by design."""
    return fact(case, "label_shift_trained") is not None or not_finite(case)


def _all_ignored(found: Located) -> bool:
    """Whether the first bad operation is a mean over class labels that are all its ``ignore_index``."""
    given = {one.name: one for one in found.inputs}
    target, index = given.get("target"), given.get("ignore_index")
    if "nll_loss" not in found.operation or target is None or index is None or target.smallest is None:
        return False
    return target.smallest == target.largest and index.text == f"{target.smallest:.0f}"


def _rows(case: Case) -> tuple[int, ...]:
    rows = fact(case, "rows_without_labels")
    return tuple(int(row) for row in rows) if isinstance(rows, list) else ()
