"""Rows of attention with nothing to attend to."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import DROP_BATCH, MATH_ATTENTION
from steadytrain.diagnosis.signs import (
    enumerated,
    fact,
    is_masked_softmax,
    layer_of,
    measured,
    not_finite,
    operation,
    rows_of,
    ruled_out,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class FullyMaskedAttention(Cause):
    """An attention row has all its keys masked.

    Means:
        Softmax over only -Inf is 0/0. The row is often padding whose output is not used, but its gradient is NaN, and
        zero times NaN is NaN, so all weights become NaN.

    Causes:
        - padding on the left with a causal mask
        - an empty sample, or a packed sample whose block is empty
        - a mask that was inverted (transformers PR 27114, #31035, pytorch #41508)

    Next:
        1. Give each row at least one key: let padding attend to itself.
        2. Use the smallest finite number in place of -Inf.
        3. Drop empty samples.
    """

    axis = "model"
    base_rate = 14.0
    rivals = ("singular-operation", "half-precision-overflow", "bad-batch")
    expects = like("operation", removed=("safe-softmax",), either=("drop-batch", "safe-operation"))
    confirming = ("safe-softmax", "drop-batch")
    spared = ("float32", "learning-rate-third")
    interventions = (
        DROP_BATCH,
        Intervention(
            "safe-softmax",
            5,
            "a softmax that gives zeros for a row of -Inf",
            "safe-softmax",
            code="weights = torch.nan_to_num(scores.softmax(-1))  # or let each row attend to itself",
        ),
        MATH_ATTENTION,
    )
    grade = "A"
    source = "pytorch #41508, #103749; transformers PR 27114, #31035; axolotl #1706"

    def signature(self, case: Case) -> Signature:
        rows = fact(case, "fully_masked_rows")
        some = bool(rows) if isinstance(rows, (list, dict)) else measured(case, "fully_masked_rows") > 0
        return Signature(
            (
                *when(
                    some and not_finite(case),
                    CERTAIN,
                    f"attention rows without a key: {enumerated(rows) if isinstance(rows, list) else rows}",
                    "fact fully_masked_rows",
                    invariant=True,
                ),
                *when(
                    some and not not_finite(case),
                    HINT,
                    "attention rows without a key, but harmless",
                    "fact fully_masked_rows",
                ),
                *operation(case, STRONG, "{operation} in {module} got a row of -Inf", is_masked_softmax),
                *operation(
                    case,
                    -FAIR,
                    "the first bad operation is {operation}, no softmax",
                    lambda found: not is_masked_softmax(found) and "attention" not in found.operation,
                ),
                *ruled_out(not not_finite(case), "everything stayed finite", "symptoms"),
            ),
            layer=layer_of(case),
            batch_rows=rows_of(case),
        )
