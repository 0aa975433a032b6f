"""Logits that drift away from zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import LOWER_RATE
from steadytrain.diagnosis.signs import fact, measured, ruled_out, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class OutputLogitDrift(Cause):
    """The output logits drift, all together or far from zero.

    Means:
        A common shift does not change the softmax, so nothing keeps the logits near zero. They reach a range where
        float16 or bfloat16 is coarse, and late in training the loss jumps. A small penalty on the log partition
        (z-loss) prevents that.

    Causes:
        - no decay on the head, a high rate late in training
        - a z-loss with the wrong sign, or a fused kernel with a wrong z-loss gradient (OLMo 2)

    Next:
        1. A z-loss of 1e-4 from the snapshot on.
        2. Decay on the head; a cap of 30 on the logits.
        3. The loss in float32.
    """

    axis = "model"
    base_rate = 4.0
    rivals = ("attention-logit-growth", "weight-decay-misuse", "half-precision-overflow")
    expects = like("script", removed=("z-loss",), either=("weight-decay-higher", "float64-loss", "float32"))
    confirming = ("z-loss",)
    spared = ("drop-batch", "beta2-lower")
    interventions = (
        Intervention(
            "z-loss",
            5,
            "a z-loss of 1e-4",
            "z-loss",
            code="loss = loss + 1e-4 * torch.logsumexp(logits, -1).square().mean()",
        ),
        LOWER_RATE,
    )
    grade = "A"
    source = "PaLM 2204.02311; 2309.14322; Marin 8B; Chameleon 2405.09818"

    def signature(self, case: Case) -> Signature:
        drift = abs(measured(case, "log_partition"))
        return Signature(
            (
                *symptom(case, STRONG, "output-logit-drift"),
                *when(drift > 30.0, FAIR, f"log partition is {drift:.3g}", "fact log_partition", drift=drift),
                *when(drift < 15.0, -STRONG, f"log partition is {drift:.3g}", "fact log_partition", drift=drift),
                *ruled_out(
                    surveyed(case) and fact(case, "log_partition") is None and seen(case, "output-logit-drift") is None,
                    "there are no logits",
                ),
            ),
        )
