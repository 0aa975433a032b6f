"""An attention mask of the wrong sign."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class InvertedMask(Cause):
    """An attention mask is inverted: it hides the tokens that it should show, and shows those that it should hide.

    Means:
        With a padding mask of the wrong sign each row attends to its padding alone and reads nothing of its text. With
        a causal mask of the wrong sign each place sees later places only. Functions do not agree on the sign: True
        hides a key in `MultiheadAttention` and shows it in `scaled_dot_product_attention`.

    Causes:
        - `key_padding_mask=attention_mask`, where 1 stands for a token
        - `masked_fill(mask == 1, -inf)` in place of `mask == 0`
        - `triu` in place of `tril`

    Next:
        1. Print the mask of one row beside its tokens, and the attention weights of one query.
        2. Invert it (`~mask`).
        3. Change a padding token: the output must not change.
    """

    axis = "model"
    base_rate = 3.0
    rivals = ("causal-leak", "fully-masked-attention", "learning-rate-too-low", "label-leakage")
    expects = like("script", removed=("opposite-mask",))
    confirming = ("opposite-mask",)
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "opposite-mask",
            4,
            "invert the mask",
            "opposite-mask",
            code="scores = scores.masked_fill(mask == 0, float('-inf'))  # key_padding_mask=(mask == 0)",
        ),
    )
    grade = "A"
    source = "the documentation of MultiheadAttention and scaled_dot_product_attention"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "inverted-mask", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "loss-collapse"),
                *ruled_out(seen(case, "inverted-mask") is None, "no attention sees only what its mask should hide"),
            )
        )
