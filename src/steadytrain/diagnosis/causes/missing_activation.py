"""A model that is linear as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MissingActivation(Cause):
    """No activation stands between the layers, so the whole model is linear.

    Means:
        A product of matrices is a matrix: layers without an activation between them compute what one layer computes.
        The model fits what is linear in its inputs and nothing else, whatever its size and however long it trains.

    Causes:
        - an activation that `__init__` makes and `forward` does not call
        - `nn.Sequential` of layers without activations; an activation replaced by `nn.Identity()`

    Next:
        1. Print the model, and follow one input through `forward`.
        2. Put an activation after each layer but the last.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "bad-initialization", "dead-units", "label-misalignment")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "activations",
            5,
            "an activation after each layer but the last",
            code="x = torch.relu(self.first(x))",
        ),
    )
    grade = "A"
    source = "Goodfellow, Bengio and Courville, Deep learning (2016), section 6.1"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "linear-model", invariant=True),
                *ruled_out(seen(case, "linear-model") is None, "no model was seen to be linear"),
                *ruled_out(not_finite(case), "a linear model makes nothing infinite", "symptoms"),
            )
        )
