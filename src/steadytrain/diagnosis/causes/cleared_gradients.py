"""Gradients that are cleared before they are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ClearedGradients(Cause):
    """`zero_grad` stands between the backward and the step, so no gradient is ever applied.

    Means:
        The backward fills the gradients, `zero_grad` empties them, and the optimizer steps with nothing. The loss moves
        with the batches and does not fall. Nothing fails.

    Causes:
        - `zero_grad` one line too low
        - a `zero_grad` at the end of a function that computes gradients, and the step behind it

    Next:
        1. Move `zero_grad` before the backward.
    """

    axis = "optimizer"
    base_rate = 2.0
    rivals = ()
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "zero-grad-first",
            5,
            "clear the gradients before the backward, not after it",
            code="optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
        ),
    )
    grade = "B"
    source = "documentation of torch.optim; reproduced for this project"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "cleared-gradients", invariant=True),
                *ruled_out(seen(case, "cleared-gradients") is None, "gradients are there when the optimizer steps"),
            )
        )
