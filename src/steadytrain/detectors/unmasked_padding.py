"""Padding that attention reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

WHAT = {
    "sees-padding": "attention gives weight to padding in each padded row: no mask hides it",
    "pools-padding": "a mean over the places of a row counts its padding",
}


@final
@dataclass(frozen=True)
class UnmaskedPadding(ScriptRule):
    """Attention, or a mean over places, takes padding for a part of the text.

    Means:
        Rows of different lengths are filled up at their end. No mask hides that padding from attention (or from the
        mean that makes one vector of a row), so what the model says about a row depends on how long the others of its
        batch are. Short rows suffer most, and an evaluation with other batches gives other answers. It is a warning if
        attention sees it and it is a good part of the places, else a note.

    Causes:
        - no `src_key_padding_mask`, `key_padding_mask` or `attention_mask`
        - `hidden.mean(1)` instead of a sum over the places that count, divided by their number
        - no fault: a model that was meant to learn what padding is

    Next:
        1. Pass the mask of the padding to each attention, and divide by the lengths in means.
        2. Check: more padding at the end of a row must not change its output.
    """

    looks_min: int = threshold(2, "looks that find it")
    share_min: float = threshold(0.15, "share of the places that are padding, from which on it is a warning")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        shifted = {row.place for row in script_rows(window, "label-shift") if row.last == 1.0}
        if any(row.place in shifted for row in script_rows(window, "next-place-seen")):
            # Places with a label that see no later one see no padding at the ends of rows. If they do see it, a causal
            # mask is what is missing: visible-labels.
            return ()
        found = []
        for measure, what in WHAT.items():
            for row in script_rows(window, measure):
                grave = measure == "sees-padding" and float(row.values.max()) >= self.share_min
                if len(row.steps) >= self.looks_min:
                    report = self.warning if grave else self.note
                    said = f"behind the loss of {row.place} {what} ({row.last:.0%} of the places)"
                    found.append(report(window, row, said, share=row.last))
        return tuple(found[:1])
