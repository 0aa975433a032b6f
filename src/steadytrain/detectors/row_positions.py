"""Positions are counted along the rows of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class RowPositions(ScriptRule):
    """Positions are counted along the rows of the batch.

    Means:
        The source of the script cuts a table of positions to the size of the first axis of its input, and its layers
        are made with `batch_first=True`; or an embedding looks up 0, 1, 2 and so on, one for each row of the batch.
        Each row gets one position for all its places, so the model does not know the order of the places, and a row is
        encoded by its place in the batch.

    Causes:
        - `x + self.pe[: x.size(0)]`, written for [places, rows, features], used with `batch_first=True`
        - `torch.arange(ids.shape[0])` for ids [rows, places]
        - no fault: an embedding of the rows of a batch by design

    Next:
        1. Count the second axis: `self.pe[:, : x.size(1)]`, with a table [1, places, features].
        2. Permute the rows of a batch: the outputs must be permuted alike.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        read = script_rows(window, "row-positions")
        told = "counts positions along the batch, which comes first: all places of a row get one"
        if read:
            return (self.warning(window, read[0], f"{read[0].place} {told}", lines=float(len(read))),)
        seen = [row for row in script_rows(window, "counted-rows") if len(row.steps) >= self.looks_min]
        return tuple(
            self.warning(window, row, f"the model of the loss of {row.place} {told}", rows=row.last) for row in seen[:1]
        )
