"""Ids beyond their table."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS, DROP_BATCH
from steadytrain.diagnosis.signs import Signs, above, fact, measured, rows_of, ruled_out, surveyed, when
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class TokenOutOfRange(Cause):
    """Token ids or labels are outside the embedding table or the classes.

    Means:
        A CPU raises an error at once; a GPU raises a device-side assertion later and elsewhere, or reads garbage. An id
        between the tokenizer's size and the table's is legal but untrained.

    Causes:
        - tokens were added and the embedding was not resized (transformers #1848)
        - a tokenizer of another model
        - labels that count from 1, or an ignored index that the loss does not know

    Next:
        1. Compare the largest id with the rows of the embedding, and the largest label with the classes.
        2. Resize the embedding (new rows at the mean of the old), or use the right tokenizer.
        3. Run the step on a CPU: the error names the operation.
    """

    axis = "data"
    base_rate = 9.0
    expects = like(
        "data",
        persists=RATE_CUTS,
    )
    confirming = ("drop-batch",)
    spared = ("float32",)
    interventions = (
        DROP_BATCH,
        Intervention(
            "labels-in-range",
            4,
            "count labels from 0, and give the head an output for each class",
            code="labels = labels - labels.min()  # and torch.nn.Linear(width, classes)",
        ),
        Intervention(
            "resize-embedding",
            4,
            "resize the embedding to the tokenizer, new rows at the mean",
            code="model.resize_token_embeddings(len(tokenizer))",
        ),
        CLEAN_ROWS,
    )
    grade = "A"
    source = "transformers #1848, #8643, #24698; torchtitan PR 1495"

    def signature(self, case: Case) -> Signature:
        outside = fact(case, "index_outside")
        beyond = measured(case, "token_largest") >= measured(case, "token_rows")
        classes = measured(case, "label_largest") >= measured(case, "classes")
        return Signature(
            (
                *above(
                    case,
                    "tokens_out_of_range",
                    0.0,
                    CERTAIN,
                    "{value} ids or labels lie outside of their table",
                    invariant=True,
                ),
                *when(
                    beyond,
                    CERTAIN,
                    "a token id is not among the rows of the embedding",
                    "fact token_largest",
                    invariant=True,
                ),
                *_ended_by(case),
                *when(classes, CERTAIN, "a label is not among the classes", "fact label_largest", invariant=True),
                *when(
                    measured(case, "label_smallest") < 0,
                    STRONG,
                    "a label is negative and not ignored",
                    "fact label_smallest",
                ),
                *ruled_out(
                    surveyed(case)
                    and not outside
                    and not beyond
                    and not classes
                    and not measured(case, "tokens_out_of_range") > 0,
                    "all ids lie inside of their tables",
                ),
            ),
            batch_rows=_rows(case) or rows_of(case),
        )


def _ended_by(case: Case) -> Signs:
    """A sign from the error that ended the run: the value, its row, its place in the data set and what is allowed."""
    found = fact(case, "index_outside")
    if not isinstance(found, dict):
        return ()
    at = f" at {found['line']}" if found.get("line") else ""
    rows = found.get("rows") or []
    if not rows:
        text = f"the run ended{at} with {found['message']}; on a CPU, the error names the value"
        return (Sign(text, STRONG, "fact index_outside"),)
    one = rows[0]
    sample = f", {one['sample']}" if one.get("sample") else ""
    allowed = f"{found['allowed'][0]} to {found['allowed'][1]}"
    text = f"{found['what']} {one['value']} in row {one['row']}{sample} is not within {allowed}{at}"
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return (Sign(text + more, CERTAIN, "fact index_outside", {"value": float(one["value"])}, invariant=True),)


def _rows(case: Case) -> tuple[int, ...]:
    found = fact(case, "index_outside")
    rows = found.get("rows") or () if isinstance(found, dict) else ()
    return tuple(dict.fromkeys(one["row"] for one in rows))
