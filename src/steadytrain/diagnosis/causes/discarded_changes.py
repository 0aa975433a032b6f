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
    """A tensor is never cleared, clipped or reduced where it should be: what was sent or ended stays in it.

    Means:
        What was to be cleared goes on to count. A residual of compressed gradients is sent again in each step, and the
        steps grow until the loss rises. A state keeps what an ended sequence left in it. Pruned weights come back.

    Causes:
        - an in-place method on `x[index]` or `x[mask]`, which changes a copy
        - error feedback of sparse gradients, whose sent part is never taken out of the residual
        - hidden states or statistics that are reset through a mask
        - rows of a table that are drawn anew through an index

    Next:
        1. Print the sum of the tensor before and after the line: it does not change.
        2. Assign to the indexed part.
    """

    axis = "optimizer"
    base_rate = 1.0
    rivals = ("learning-rate-too-high", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "assign-indexed-part",
            4,
            "assign to the indexed part in place of changing its copy",
            code="residual[index] = 0  # not residual[index].zero_()",
        ),
    )
    grade = "B"
    source = "the documentation of torch on indexing (advanced indexing copies); 1809.07599 on error feedback"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "discarded-changes", "kept-residual", invariant=True),
                *symptom(case, HINT, "divergence", "oscillation", "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "discarded-changes", "kept-residual") is None,
                    "no copy is changed in place and thrown away, and no residual is stored whole",
                ),
            )
        )
