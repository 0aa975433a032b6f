"""Noise that is drawn twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnrelatedNoise(Cause):
    """The noise is drawn twice, so the noise in the target is unrelated to the noise in the input.

    Means:
        A model that predicts the noise in its input learns from the very noise that was added. If the function that
        adds it draws a fresh one, the target is independent of the input, and the best prediction is 0.

    Causes:
        - `x = q_sample(x0, t)` without the noise that the loss compares with
        - `torch.randn_like` called once more in the loss

    Next:
        1. Draw the noise once in the loss, and pass it to the function that adds it.
        2. Give that function no default for the noise.
    """

    axis = "loss"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "bad-initialization", "label-leakage")
    expects = like("script", removed=("same-noise",))
    confirming = ("same-noise",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "same-noise",
            4,
            "draw the noise once, for the input and for the target",
            "same-noise",
            code="noise = torch.randn_like(x0); loss = mse_loss(model(q_sample(x0, t, noise), t), noise)",
        ),
    )
    grade = "A"
    source = "2006.11239, algorithm 1"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "unrelated-noise", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(seen(case, "unrelated-noise") is None, "no target is noise that the model was not given"),
            )
        )
