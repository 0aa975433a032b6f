"""The model sees the token that it is to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class VisibleLabels(ScriptRule):
    """Attention reaches the next token, which is the label: the model can read the answer.

    Means:
        The labels are the next tokens, and at places with a label every square attention of the model gives weight to
        the place after. The loss falls far below what is possible, and generation fails. A prefix that is read from
        both sides has no labels and is not meant; nor are models that are to fill in hidden words.

    Causes:
        - no causal mask, or `is_causal=False` in `scaled_dot_product_attention`
        - a mask of the wrong sign, or one that masks the past

    Next:
        1. Use `is_causal=True`, or a mask whose upper triangle is closed.
        2. Run `steadytrain preflight`: its check causality changes a later token and looks at earlier logits.
    """

    looks_min: int = threshold(2, "looks that agree")
    seen_weight_min: float = threshold(1e-6, "weight of the next place; a closed mask gives exactly 0")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        shifted = {row.place for row in script_rows(window, "label-shift") if row.last == 1.0}
        found = []
        for row in script_rows(window, "next-place-seen"):
            if row.place in shifted and len(row.steps) >= self.looks_min and (row.values > self.seen_weight_min).all():
                found.append(
                    self.warning(
                        window,
                        row,
                        f"attention sees the next token, which is the label of the loss of {row.place}: there "
                        "is no causal mask",
                        weight=row.last,
                    )
                )
        return tuple(found[:1])
