"""An objective that changes within one step of L-BFGS."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ChangingClosure(Cause):
    """The closure of L-BFGS draws anew at each call, so the function changes while its curvature is estimated.

    Means:
        L-BFGS calls its closure many times in one step and takes the differences of the gradients for the curvature
        of one function. If the closure draws random points, noise or the next batch, each call has another function:
        the differences are mostly noise, the estimated curvature is wrong, and steps become far too long. The loss
        stalls, or explodes within some steps.

    Causes:
        - collocation points of a physics-informed network that are drawn inside the closure
        - `next(loader)` inside the closure
        - noise or augmentation inside the closure

    Next:
        1. Draw points or batch before `optimizer.step(closure)`, and use them in all of its calls.
        2. Or set the seed of their generator at the start of the closure.
        3. Or stay with Adam where the data must change.
    """

    axis = "optimizer"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "learning-rate-too-high")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "draw-before-step",
            4,
            "draw points or batch once before the step",
            code="points = draw(); optimizer.step(closure)  # the closure reads points",
        ),
    )
    grade = "B"
    source = "the documentation of torch.optim.LBFGS"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "changing-closure", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *symptom(case, STRONG, "exploding-gradients", "lost-progress", "divergence", "loss-spike"),
                *ruled_out(seen(case, "changing-closure") is None, "no closure of L-BFGS draws anew"),
            )
        )
