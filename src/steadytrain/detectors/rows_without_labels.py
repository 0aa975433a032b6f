"""Rows of the batch have no label that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class RowsWithoutLabels(ScriptRule):
    """Some rows of each batch have no label at all: they are computed and teach nothing.

    Means:
        Every label of these rows is the one that the loss ignores. A batch of such rows alone gives a loss of 0/0,
        which is NaN. It is a warning above a quarter of all rows if the labels are tokens of the input, as in
        fine-tuning on answers; else a note, because annotations may be sparse by design.

    Causes:
        - prompts that are as long as the row, so that truncation cuts the answer off
        - a mask of prompts that found no answer, because the template is another one

    Next:
        1. Print a row's tokens and labels, and count the labels that are not -100 in each row.
        2. Truncate the prompt and not the answer, or drop rows without an answer.
    """

    looks_min: int = threshold(2, "looks that find it: a single row may be an exception")
    rows_share: float = threshold(0.25, "share of the rows without a label that is a warning. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        of_tokens = {row.place for row in script_rows(window, "label-shift")}
        for row in script_rows(window, "rows-without-label"):
            beyond = row.values > 0.0
            if beyond.sum() >= self.looks_min:
                share = float(row.values.mean())
                found.append(
                    Symptom(
                        name="rows-without-labels",
                        severity="warning" if share > self.rows_share and row.place in of_tokens else "note",
                        first_step=int(row.steps[beyond][0]),
                        last_step=int(window.steps[-1]),
                        message=f"{share:.0%} of the rows have no label that the loss of {row.place} counts",
                        signals=("script.value",),
                        numbers={"share": share},
                    )
                )
        return tuple(found[:1])
