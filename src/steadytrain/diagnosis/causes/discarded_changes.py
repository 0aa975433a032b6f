"""A tensor that should be changed in place stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class DiscardedChanges(Cause):
    """A line changes a copy in place and throws it away, so the tensor that it means stays as it was.

    Means:
        A mask or an index tensor makes a copy of what it takes. A mask of attention is not applied, a state keeps what
        an ended sequence left in it, pruned weights stay: the script goes on as if the line were not there.

    Causes:
        - an in-place method on `x[index]` or `x[mask]`: `zero_`, `fill_`, `mul_`, `clamp_`, `copy_`

    Next:
        1. Print the sum of the tensor before and after the line: it does not change.
        2. Assign to the indexed part: `x[mask] = 0`.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-high", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "assign-indexed-part",
            4,
            "assign to the indexed part in place of changing its copy",
            code="x[mask] = value  # not x[mask].fill_(value)",
        ),
    )
    grade = "B"
    source = "the documentation of torch on advanced indexing, which copies"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "discarded-changes", invariant=True),
                *symptom(case, HINT, "divergence", "oscillation", "no-learning", "plateau"),
                *ruled_out(seen(case, "discarded-changes") is None, "no copy is changed in place and thrown away"),
            )
        )
