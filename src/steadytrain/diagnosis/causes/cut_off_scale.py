"""A variance or scale is cut off at a floor near zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class CutOffScale(Cause):
    """A variance or scale that the network predicts is made positive by a ReLU or a clamp near zero.

    Means:
        A likelihood divides by the variance. At a floor of 1e-6 it explodes, and its gradient does not pass the cut:
        the rows at the floor cannot raise their variance, and push the mean by steps that are far too large.

    Causes:
        - `F.relu(raw) + 1e-6` or `raw.clamp(min=1e-6)` in place of a softplus or an exponential
        - a head that ends in a ReLU

    Next:
        1. Make the scale by a softplus with a floor of 1e-3, or by the exponential of a bounded logarithm.
        2. Print how many scales stand at the floor.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("singular-operation", "dead-units", "learning-rate-too-high")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "smooth-scale",
            4,
            "make the scale by a softplus, which is positive everywhere and has a gradient",
            code="variance = F.softplus(raw) + 1e-3",
        ),
    )
    grade = "B"
    source = "1612.01474, section 2.2: a softplus and a small constant"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "cut-off-scale", invariant=True),
                *symptom(case, HINT, "no-learning", "loss-spike", "exploding-gradients", "dead-units"),
                *ruled_out(seen(case, "cut-off-scale") is None, "no scale is cut off near 0"),
            )
        )
