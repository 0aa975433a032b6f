"""Attention that becomes one-hot."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import LOWER_RATE
from steadytrain.diagnosis.signs import (
    above,
    below,
    fact,
    holds,
    layer_of,
    measured,
    ruled_out,
    seen,
    surveyed,
    symptom,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class AttentionLogitGrowth(Cause):
    """The logits of attention grow until each query attends to one position only.

    Means:
        Queries and keys grow, and their products grow faster; the softmax saturates, its gradient vanishes or jumps,
        and the loss follows hundreds of steps later. In Marin 32B the growth returned after a new optimizer and after
        rebuilt state; a norm on queries and keys cured it. A largest logit of 100 is the usual bound; 1,000 was seen
        before divergence (2507.20534).

    Causes:
        - no norm of queries and keys, a rate that is too high for them
        - a forgotten scale of 1/sqrt(d) (transformers #45676)

    Next:
        1. Clip queries and keys (tau 100), or cap the logits at 50, and continue from the snapshot.
        2. A norm on queries and keys in the next run.
        3. A lower rate for their weights.
    """

    axis = "model"
    base_rate = 10.0
    rivals = ("learning-rate-too-high", "half-precision-overflow", "output-logit-drift")
    expects = like("logits")
    confirming = ("attention-softcap", "qk-clip")
    spared = ("drop-batch", "beta2-lower")
    interventions = (
        LOWER_RATE,
        Intervention(
            "attention-softcap",
            5,
            "cap the logits of attention at 50",
            "attention-softcap",
            code="scores = 50 * torch.tanh(scores / 50)",
        ),
        Intervention(
            "qk-clip",
            5,
            "scale queries and keys down where their products are above 30",
            "qk-clip",
            code="q, k = (t * min(1.0, (30 / scores.abs().max()) ** 0.5) for t in (q, k))",
        ),
        Intervention(
            "qk-norm",
            5,
            "a norm on queries and keys",
            code="q, k = torch.nn.functional.rms_norm(q, q.shape[-1:]), torch.nn.functional.rms_norm(k, k.shape[-1:])",
        ),
    )
    grade = "A"
    source = "2302.05442; 2309.14322; 2507.20534; Marin 32B; flash-attention #1876"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, STRONG, "attention-logit-growth", "attention-entropy-collapse"),
                *above(case, "attention_logit_largest", LARGE, STRONG, "the largest logit of attention is {value}"),
                *below(case, "attention_logit_largest", 30.0, -STRONG, "the largest logit of attention is {value}"),
                # Some models (T5) are designed without a scale; their products are small.
                *holds(
                    case,
                    "attention_unscaled",
                    FAIR,
                    "attention does not divide by the root of the width",
                    invariant=measured(case, "attention_logit_largest") > LARGE,
                ),
                *ruled_out(
                    surveyed(case)
                    and fact(case, "attention_logit_largest") is None
                    and seen(case, "attention-logit-growth", "attention-entropy-collapse") is None,
                    "no attention was seen",
                ),
            ),
            layer=layer_of(case),
        )


LARGE = 100.0
"""An attention logit that large runs watch for (2507.20534 clips there)."""
