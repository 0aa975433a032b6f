"""A model that sees the future."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import MATH_ATTENTION
from steadytrain.diagnosis.row_signs import reads_other_rows
from steadytrain.diagnosis.signs import (
    above,
    equivalence,
    fact,
    layer_of,
    measured,
    ruled_out,
    seen,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class CausalLeak(Cause):
    """The output at a position depends on later inputs.

    Means:
        A causal model must not see the token that it predicts. The gradient of the logits at `t` with respect to the
        embedding after `t` must be exactly zero; as a control, the gradient with respect to earlier embeddings must not
        be. With a leak the loss falls far below the entropy of the data, and generation fails.

    Causes:
        - a mask that is missing, inverted or added with the wrong sign
        - a mask that is computed and dropped: `scores.masked_fill(mask, -1e9)` as a statement of its own
        - `is_causal` together with a custom mask: a backend drops one of them
        - packed documents that see each other (Megatron #2357); a convolution or a norm over time

    Next:
        1. Pass the mask, and run the gradient test again through the real attention backend.
        2. Test with a packed batch, too.
        3. Train again from the start: weights learned with the leak are useless.
    """

    axis = "model"
    base_rate = 9.0
    rivals = ("label-misalignment",)
    expects = like("script", removed=("causal-mask",))
    confirming = ("causal-mask",)
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "causal-mask",
            5,
            "give attention its causal mask",
            "causal-mask",
            code="scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
        Intervention(
            "keep-masked-scores",
            4,
            "assign the masked scores",
            code='scores = scores.masked_fill(future, float("-inf"))',
            of=("dropped-result",),
        ),
        MATH_ATTENTION,
    )
    grade = "A"
    source = "Megatron-LM #2357; transformers PR 46634; nanoVLM PR 204"

    def signature(self, case: Case) -> Signature:
        shift = measured(case, "label_shift_trained")
        found = seen(case, "dropped-result")
        dropped = found.message if found is not None else ""
        reads_on = above(
            case,
            "causal_gradient",
            1e-6,
            CERTAIN,
            "outputs depend on later inputs: {value} of the gradient to earlier ones",
            invariant=True,
        )
        return Signature(
            (
                *(equivalence(reads_on) if shift >= 1 else ()),
                *when(
                    bool(reads_on) and not shift >= 1,
                    -STRONG,
                    "its targets are not later tokens, so it may read all tokens",
                    "fact label_shift_trained",
                ),
                *ruled_out(
                    reads_other_rows(case),
                    "outputs depend on the other rows of the batch, too, which no mask prevents",
                    "fact batch_gradient",
                ),
                *symptom(case, CERTAIN, "visible-labels", invariant=True),
                *when(
                    bool(reads_on or seen(case, "visible-labels")) and "masked_fill" in dropped,
                    STRONG,
                    dropped,
                    "symptom dropped-result",
                    invariant=True,
                ),
                *symptom(case, STRONG, "inverted-mask"),
                *symptom(case, FAIR, "loss-collapse"),
                *ruled_out(measured(case, "causal_gradient") == 0.0, "no output depends on a later input"),
                *when(
                    surveyed(case) and fact(case, "causal_gradient") is None and seen(case, "visible-labels") is None,
                    -FAIR,
                    "the model is not causal, or could not be tested",
                    "facts",
                ),
            ),
            layer=layer_of(case),
        )
