"""An answer that is read at a place of padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ReadPadding(ScriptRule):
    """The answer for a row is read at its last place, which is padding in most rows.

    Means:
        Rows of different lengths are filled up at their end, and the model takes the output of a recurrent layer at the
        last place of the batch. For a short row that is the state after all the padding: what it has read is forgotten
        on the way, the more the shorter it is.

    Causes:
        - `outputs[:, -1]` of rows that are padded on the right
        - no fault: padding that the model was meant to read past

    Next:
        1. Take the output at `length - 1` of each row, or the last state of a packed sequence
           (`pack_padded_sequence`).
        2. Or pad on the left.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"the loss of {row.place} judges the output at the last place, which is padding in {row.last:.0%} of "
                "the rows",
                share=row.last,
            )
            for row in script_rows(window, "padded-end")
            if len(row.steps) >= self.looks_min
        )[:1]
