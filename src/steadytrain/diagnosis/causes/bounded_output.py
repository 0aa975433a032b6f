"""A last activation that does not suit the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.reach import made_the_predictions
from steadytrain.diagnosis.signs import above, ruled_out, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


OUTSIDE = "{value} of the targets lie outside of what the last operation can give"


@final
class BoundedOutput(Cause):
    """An activation after the last layer of the model bounds the predictions, and targets lie beyond its end.

    Means:
        A ReLU or softplus at the output gives nothing below 0, a tanh nothing beyond -1 and 1. The model cannot predict
        the other targets, and where a ReLU is off it gets no gradient either. The loss stays at that of the nearest
        prediction in reach.

    Causes:
        - a function that builds layers and puts an activation after each, the last one too
        - a head of another task, kept for regression
        - standardised targets, which are negative half of the time, for a head that was meant for counts

    Next:
        1. Print the smallest and the largest target, and those of the predictions.
        2. Leave out the activation after the last layer.
        3. If the predictions have to be positive, train on targets that are: counts, or their logarithm.
    """

    axis = "model"
    base_rate = 8.0
    rivals = ("infeasible-target", "dead-units", "learning-rate-too-low")
    expects = like("script", removed=("linear-output",))
    confirming = ("linear-output",)
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention(
            "linear-output",
            2,
            "leave out the activation after the last layer",
            "linear-output",
            code="nn.Sequential(*layers[:-1])  # without the last ReLU: its output cannot be negative",
        ),
    )
    grade = "A"
    source = "a rectifier has no negative output, and no gradient where it is off"

    def signature(self, case: Case) -> Signature:
        made = made_the_predictions(case)
        return Signature(
            (
                *when(bool(made), CERTAIN, made, "symptom unreachable-targets", invariant=True),
                *(above(case, "targets_out_of_reach", 0.01, CERTAIN, OUTSIDE, invariant=True) if made else ()),
                *symptom(case, HINT, "plateau", "no-learning", "dead-units"),
                *ruled_out(not made, "no activation bounds the predictions, or all targets can be reached"),
            )
        )
