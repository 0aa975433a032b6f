"""The end of each text is masked, because padding has its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MaskedEnd(Cause):
    """The end of each text is masked, because padding has its id.

    Means:
        Padding is the id of the end, and labels are masked wherever that id stands. The end after each answer is
        masked, too, so no label ever asks the model to stop. The loss does not show it.

    Causes:
        - `tokenizer.pad_token = tokenizer.eos_token` with `DataCollatorForLanguageModeling` (transformers #23530)
        - `labels[labels == pad_id] = -100` with `pad_id = eos_id`

    Next:
        1. Mask by the attention mask or by length, not by the id.
        2. Or give padding a token of its own, and resize the model's embeddings.
        3. Generate from a trained text: it must end.
    """

    axis = "loss"
    base_rate = 4.0
    rivals = ("padding-in-loss", "no-supervised-tokens")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "mask-by-length",
            4,
            "mask labels by the attention mask, which is 1 at the end of the text",
            code="labels = input_ids.masked_fill(attention_mask == 0, -100)",
        ),
        Intervention(
            "own-padding-token",
            4,
            "give padding a token of its own",
            code='tokenizer.add_special_tokens({"pad_token": "<pad>"})\nmodel.resize_token_embeddings(len(tokenizer))',
        ),
    )
    grade = "A"
    source = "transformers #23530; TRL #976, #734"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "masked-end", invariant=True),
                *ruled_out(seen(case, "masked-end") is None, "no end that is masked with padding was seen"),
            )
        )
