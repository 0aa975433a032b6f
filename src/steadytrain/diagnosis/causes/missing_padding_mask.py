"""Padding that no mask hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MissingPaddingMask(Cause):
    """No mask hides the padding from attention or from a mean over the places of a row.

    Means:
        The answer for a row depends on the padding behind it, and so on the longest row of its batch. Attention spreads
        its weight over places that hold nothing, and a mean is divided by the padded length.

    Causes:
        - the padding mask is not passed to attention, or only to some layers
        - `mean(1)` over padded places

    Next:
        1. Make the mask from the ids or the lengths, and pass it to every attention and every mean.
        2. Compare the output of a row alone with its output in a padded batch.
    """

    axis = "model"
    base_rate = 2.0
    rivals = ("padding-in-loss", "read-padding", "inverted-mask", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "padding-mask",
            5,
            "hide the padding from attention, and leave it out of means",
            code="hidden = encoder(x, src_key_padding_mask=ids == pad_id)",
        ),
    )
    grade = "A"
    source = "documentation of torch.nn.TransformerEncoder"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "unmasked-padding", invariant=True),
                *ruled_out(seen(case, "unmasked-padding") is None, "no padding was seen by attention or in a mean"),
                *ruled_out(not_finite(case), "padding that is seen makes nothing infinite", "symptoms"),
            )
        )
