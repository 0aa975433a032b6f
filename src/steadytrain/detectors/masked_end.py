"""The end of a text has the id of padding and is masked with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class MaskedEnd(ScriptRule):
    """The id that ends every row is never a label: padding has the same id and is masked by it.

    Means:
        The script fills rows up with the id of the end, and sets labels to -100 wherever the input is that id. So the
        end after each text is masked, too. The loss is that of the text and looks sound, but the model never learns to
        stop: it goes on until the longest length that generation allows. It is reported where a tokenizer of
        transformers pads with its end, or where the source makes the one id of the other, and where each row of a batch
        ends with the id, the token before it is a label, and the id is none. Half of the rows are enough where the
        source puts the end into each text: the longest rows may be cut before it.

    Causes:
        - `tokenizer.pad_token = tokenizer.eos_token` with a collator that masks by the padding's id
        - `PAD = EOS` with `labels[labels == PAD] = -100` or `ignore_index=PAD`

    Next:
        1. Mask by length: labels are -100 where the attention mask is 0, which is 1 at the end of the text.
        2. Or give padding a token of its own: `tokenizer.add_special_tokens({"pad_token": "<pad>"})`.
        3. Print a row's tokens and labels: the end after the text must be a label.
    """

    looks_min: int = threshold(2, "looks in which every row is so: a batch may be an exception")
    cut_share: float = threshold(
        0.5, "of the rows, where the source puts the end into each and longer ones are cut. Chosen"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        source = [row.place for row in script_rows(window, "end-as-padding")]
        tokenizer = {row.place for row in script_rows(window, "tokenizer-pads")}
        ids = {row.place: row.last for row in script_rows(window, "end-id")}
        share = self.cut_share if source and script_rows(window, "end-put-in") else 1.0
        for row in script_rows(window, "end-unsupervised"):
            every = row.values >= share
            known = bool(source) or row.place in tokenizer
            if known and every.sum() >= self.looks_min and 2 * every.sum() > len(every) and row.values.min() > 0.0:
                why = (
                    "the tokenizer's pad token is its end token"
                    if row.place in tokenizer
                    else f"{source[0]} pads with it"
                )
                which = "every row" if row.values.min() >= 1.0 else "the rows"
                end = f"the end token (eos), id {ids[row.place]:.0f},"
                said = f"{end} ends {which} and is never a label of the loss of {row.place}"
                told = f"{said}: {why}, and labels are masked by it, so the model does not learn to stop"
                return (self.warning(window, row, told, looks=float(every.sum())),)
        return ()
