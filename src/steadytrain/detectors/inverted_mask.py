"""An attention mask of the wrong sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

WHAT = {
    "attends-padding": "sees the padding of each row and none of its tokens",
    "attends-ahead": "sees later places only, and no earlier one",
}


@final
@dataclass(frozen=True)
class InvertedMask(ScriptRule):
    """Attention sees what its mask should hide, and does not see what it should show.

    Means:
        Either every attention over padded rows gives its weight to the padding alone, or every square attention gives
        weight to later places and none to earlier ones. The first reads nothing of the text; the second reads the
        tokens that a language model has to predict.

    Causes:
        - `key_padding_mask` and `src_key_padding_mask` are True where a key is hidden; an attention mask of a
          tokenizer is 1 where it is shown
        - `scaled_dot_product_attention` shows a place where its bool mask is True, `MultiheadAttention` hides it there
        - `triu` in place of `tril`

    Next:
        1. Print the mask of one row beside its tokens.
        2. Invert it (`~mask`), or pass `is_causal=True`.
        3. Change the last token of a text: the outputs before it must not change.
    """

    looks_min: int = threshold(2, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [(what, row) for measure, what in WHAT.items() for row in script_rows(window, measure)]
        return tuple(
            self.warning(
                window,
                row,
                f"attention behind the loss of {row.place} {what}: its mask has the wrong sign ({row.last:.0f} in all)",
                attentions=row.last,
            )
            for what, row in found
            if len(row.steps) >= self.looks_min
        )[:1]
