"""An average of the weights (EMA) follows the model too slowly for the length of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SlowAverage(Cause):
    """An average of the weights (EMA) does not follow the model: its decay is too slow for the run, or 16 bits too few.

    Means:
        An exponential moving average forgets its first values over 1 / (1 - decay) updates. In a shorter run it stays
        what it began with, so what is evaluated, sampled or saved from it is an untrained model. The training loss is
        not concerned.

    Causes:
        - a decay of 0.9999 in a run of some hundred updates, without a warm-up of the decay
        - an average in bfloat16 or float16, whose steps are smaller than the last bit of its values

    Next:
        1. Let the decay grow with the updates, or lower it; keep the average in float32.
        2. Evaluate the model itself beside its average.
    """

    axis = "harness"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "uninitialized-parameters")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "warm-up-decay",
            4,
            "let the decay of the average grow with the updates",
            code="decay = min(decay, (1 + updates) / (10 + updates))",
        ),
        Intervention(
            "float32-average",
            4,
            "keep the average in float32, and cast it only for use",
            code="average = copy.deepcopy(model).float()",
        ),
    )
    grade = "B"
    source = "the warm-up of ExponentialMovingAverage in TensorFlow and of EMAModel in diffusers"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "slow-average", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "slow-average") is None, "no average that is evaluated is still what it began with"
                ),
            )
        )
