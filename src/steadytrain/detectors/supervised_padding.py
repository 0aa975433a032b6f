"""Padding counts in the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SupervisedPadding(ScriptRule):
    """The loss counts padding: many labels ask for padding after padding.

    Means:
        Rows are filled up at their ends with one id. Where that id stands, the label is the same id again, and the loss
        does not ignore it. The model learns these labels at once. So the loss looks far too low, and it depends on the
        lengths of the rows. The id that ends a text is a label too, and counts once. It is a note if a loss per place
        is multiplied by a mask of padding, and the mean is taken over all places.

    Causes:
        - `ignore_index` is not set, or is another number than the padding's id
        - labels that are a copy of the inputs, without -100 where the attention mask is 0

    Next:
        1. Set the labels to -100 where the attention mask is 0, or pass `ignore_index=pad_id`.
        2. Divide a masked sum by the sum of the mask.
        3. Compare the loss of a short and of a long row.
    """

    looks_min: int = threshold(2, "looks that find it: a batch may have full rows only")
    padding_share: float = threshold(0.1, "share of the labels that are padding after padding. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for row in script_rows(window, "padding-share"):
            beyond = row.values > self.padding_share
            if beyond.sum() >= self.looks_min:
                share = float(row.values[beyond].mean())
                found.append(
                    Symptom(
                        name="supervised-padding",
                        severity="warning",
                        first_step=int(row.steps[beyond][0]),
                        last_step=int(window.steps[-1]),
                        message=f"{share:.0%} of the labels of the loss of {row.place} are padding after padding",
                        signals=("script.value",),
                        numbers={"share": share},
                    )
                )
        return tuple(found[:1]) or self._averaged(window)

    def _averaged(self, window: Window) -> tuple[Symptom, ...]:
        """A mean over places that the script's own mask has set to zero."""
        rows = [one for one in script_rows(window, "mean-over-padding") if one.last > self.padding_share]
        return tuple(
            Symptom(
                name="supervised-padding",
                severity="note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"the mean of the loss of {row.place} counts {row.last:.0%} places that its mask sets to zero: "
                "it depends on the lengths of the rows",
                signals=("script.value",),
                numbers={"share": row.last},
            )
            for row in rows[:1]
            if len(row.steps) >= self.looks_min
        )
