"""Labels do not stand where a language model is to predict them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class MisplacedLabels(ScriptRule):
    """The labels are the token at the same place, or one too far: the model learns to copy, or skips a token.

    Means:
        The labels of the loss were compared with the tokens that the model was given. A model that predicts the next
        token has labels that are the token one place later. With labels at the same place it learns to copy its input:
        the loss falls to nearly nothing within some hundred steps, and generated text repeats itself. Labels two places
        later were shifted twice. It is a warning where attention is causal, the shift is two or more, or a decoder is
        given beside another text what it is to write; else a note: an autoencoder may be meant.

    Causes:
        - labels equal to the inputs, and no shift in the loss
        - labels that the collator shifted, given to a model that shifts them again

    Next:
        1. Print the first tokens of a row and its labels side by side.
        2. Shift once: `logits[:, :-1]` against `labels[:, 1:]`, in the data or in the model, not in both.
    """

    looks_min: int = threshold(2, "looks that agree")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        causal = any(row.last > 0.0 for row in script_rows(window, "causal"))
        copied = {row.place for row in script_rows(window, "other-text")}
        for row in script_rows(window, "label-shift"):
            wrong = row.values != 1.0
            if wrong.sum() < self.looks_min or not wrong.all():
                continue
            shift = int(row.last)
            where = "the token at the same place" if shift == 0 else f"the token {shift} places later"
            found.append(
                Symptom(
                    name="misplaced-labels",
                    severity="warning" if causal or shift > 1 or row.place in copied else "note",
                    first_step=int(row.steps[0]),
                    last_step=int(window.steps[-1]),
                    message=f"each label of the loss of {row.place} is {where}, not the next one",
                    signals=("script.value",),
                    numbers={"shift": float(shift)},
                )
            )
        return tuple(found[:1])
