"""Gradients that float16 rounds to zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import BFLOAT16, FLOAT32
from steadytrain.diagnosis.signs import fails, measured, no_half, not_finite, ruled_out, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class GradientUnderflow(Cause):
    """Gradients are too small for float16 and round to zero.

    Means:
        The smallest float16 number is 6e-8. Far more gradients are exactly zero than when the same step runs in
        float32, so part of the model does not learn. There is no error; the loss falls more slowly, or not at all.

    Causes:
        - float16 without a gradient scaler, or with a scale that is too small
        - a scale that sank after many skipped steps
        - a loss divided by a large number

    Next:
        1. Use a gradient scaler, or bfloat16, which has the range of float32.
        2. Raise the scale; check that the share of zeros falls.
        3. Sum over tokens and divide later, not before backward.
    """

    axis = "precision"
    base_rate = 5.0
    rivals = ("half-precision-overflow", "lost-updates", "learning-rate-too-low")
    expects = like("half", removed=("loss-scale-up",))
    confirming = ("float32", "loss-scale-up", "bfloat16")
    spared = ("learning-rate-third",)
    interventions = (
        BFLOAT16,
        Intervention(
            "raise-loss-scale",
            2,
            "a larger loss scale",
            "loss-scale-up",
            code="scaler = torch.amp.GradScaler(init_scale=2.0**20)",
        ),
        FLOAT32,
    )
    grade = "A"
    source = "1710.03740, mixed precision training"

    def signature(self, case: Case) -> Signature:
        half, full = measured(case, "gradient_underflow_share"), measured(case, "gradient_zero_share_by_float32")
        excess = half - full
        return Signature(
            (
                *when(
                    excess > 0.05,
                    CERTAIN,
                    f"{half:.0%} of the gradients are zero or subnormal, {full:.0%} in float32",
                    "fact gradient_underflow_share",
                    invariant=True,
                    half=half,
                    float32=full,
                ),
                *when(
                    excess <= 0.02,
                    -STRONG,
                    f"{half:.0%} of the gradients are zero or subnormal, {full:.0%} in float32",
                    "fact gradient_underflow_share",
                    half=half,
                    float32=full,
                ),
                *fails(case, "scaler", HINT, "there is no gradient scaler"),
                *symptom(case, HINT, "plateau", "no-learning", "frozen-parameters", "vanishing-gradients"),
                *ruled_out(no_half(case), "nothing is computed in float16"),
                *ruled_out(not_finite(case), "an underflow makes nothing infinite", "symptoms"),
            ),
        )
