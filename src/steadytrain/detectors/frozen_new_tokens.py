"""Tokens that were added to a frozen table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FrozenNewTokens(ScriptRule):
    """Tokens are added to a model, and its embedding stays frozen under adapters.

    Means:
        The rows of the new tokens stay as they were drawn. Adapters learn around them at best: the model cannot tell
        the new tokens apart where their rows are equal, and an output layer tied to the table never writes them. A
        token for padding alone is not meant. The growth is read in the source, and the model
        holds the frozen table.

    Causes:
        - `add_tokens` and `resize_token_embeddings` before `get_peft_model`, without `modules_to_save`
        - a table with more rows in a model whose base is frozen by hand

    Next:
        1. `LoraConfig(trainable_token_indices=...)`, or `modules_to_save=["embed_tokens", "lm_head"]`.
        2. By hand: `requires_grad_(True)` on the table, and a hook that clears the gradient of the old rows.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        tables = script_rows(window, "frozen-table")
        return tuple(
            self.warning(
                window,
                row,
                f"{row.place} gives the table rows for new tokens, and {tables[0].place} is frozen under adapters: "
                "these rows stay as they were drawn",
                rows=tables[0].last,
            )
            for row in script_rows(window, "frozen-new-tokens")[:1]
            if tables
        )
