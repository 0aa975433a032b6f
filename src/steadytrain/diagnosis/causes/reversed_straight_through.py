"""A straight-through estimator the wrong way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ReversedStraightThrough(Cause):
    """A straight-through estimator is reversed: the forward skips the codes, or the gradient goes the wrong way.

    Means:
        Rounding, a choice and a codebook have no gradient, so a straight-through estimator takes the value of the
        discrete side and hands the gradient to the continuous one. Reversed, the decoder is fed the continuous latent
        and never sees a code, while the encoder gets no gradient of what is done with it; or a choice is trained
        against its gradient.

    Causes:
        - `q + (z - q).detach()` in place of `z + (q - z).detach()`
        - `hard - soft + soft.detach()` in place of `hard - soft.detach() + soft`

    Next:
        1. Turn the line around.
        2. Evaluate from the codes alone: the loss in training does not show the difference.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("detached-graph", "router-collapse", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "turn-straight-through",
            5,
            "turn the straight-through estimator around",
            code="out = z + (q - z).detach()  # the value of q, the gradient of z",
        ),
    )
    grade = "A"
    source = "1308.3432; 1711.00937, section 3.2; torch.nn.functional.gumbel_softmax"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "reversed-straight-through", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "expert-load-collapse"),
                *ruled_out(
                    seen(case, "reversed-straight-through") is None,
                    "the source shows no straight-through estimator that is reversed",
                ),
            )
        )
