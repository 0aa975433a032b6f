"""Padding that is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS
from steadytrain.diagnosis.signs import fact, measured, ruled_out, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class PaddingInLoss(Cause):
    """Padding counts in the loss.

    Means:
        Labels at padded positions are not ignored, so the model learns to predict padding. The loss looks far too good,
        because padding is easy, and changes with the length of the batch. The opposite is as bad: if padding has the
        end token's id and is ignored by value, the model never learns to stop.

    Causes:
        - labels that are a copy of the inputs without a mask
        - `pad_token = eos_token`, and masking by value (transformers #23530, TRL #976)
        - a loss without the right `ignore_index`

    Next:
        1. Count labels equal to the padding id.
        2. Set labels to -100 by the attention mask, not by value.
        3. Compare the loss of the same rows padded to two lengths: it must not change.
    """

    axis = "loss"
    base_rate = 6.0
    rivals = ("no-supervised-tokens", "loss-function-misuse", "label-misalignment")
    expects = like("script", removed=("ignore-padding",))
    confirming = ("ignore-padding",)
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "mask-padding",
            4,
            "ignore labels at padded places",
            "ignore-padding",
            code="labels = labels.masked_fill(ids == pad_id, -100)",
        ),
        CLEAN_ROWS,
    )
    grade = "A"
    source = "transformers #23530; TRL #976; Megatron-Bridge #4660"

    def signature(self, case: Case) -> Signature:
        supervised, padded = measured(case, "pad_supervised_share"), measured(case, "pad_share")
        return Signature(
            (
                *when(
                    padded > PADDED_MIN and 0.5 * padded < supervised < 1.5 * padded,
                    CERTAIN,
                    f"{supervised:.0%} of the labels are padding, and {padded:.0%} of the inputs",
                    "fact pad_supervised_share",
                    invariant=True,
                    supervised=supervised,
                    padded=padded,
                ),
                *symptom(case, STRONG, "supervised-padding"),
                *ruled_out(surveyed(case) and fact(case, "pad_id") is None, "the inputs have no padding"),
                *ruled_out(measured(case, "pad_supervised_share") == 0.0, "no label is padding"),
            )
        )


PADDED_MIN = 0.1
"""Share of the inputs. The padding id is a guess from how rows end, and repeated characters can end rows, too. Padding
is only at the ends, so its share of the labels cannot exceed its share there."""
