"""Attention over the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class MixedRows(ScriptRule):
    """Attention, or a recurrent layer, goes over the rows of the batch, and not over the places of each row.

    Means:
        Every attention and every recurrent layer is as long as the batch has rows, and the loss judges one prediction a
        row. Each place of a row is read together with the same place of the other rows, so a row never sees its own
        places together, and its prediction depends on what else is in the batch.

    Causes:
        - `nn.LSTM`, `nn.GRU`, `nn.MultiheadAttention` or `nn.TransformerEncoderLayer` without `batch_first=True`, given
          [rows, places, features]
        - a transpose that is missing, or made twice
        - no fault: attention between samples by design

    Next:
        1. Pass `batch_first=True`, or transpose to [places, rows, features] before the layer and back behind it.
        2. Change one row of a batch: the outputs of all others must not change.
    """

    looks_min: int = threshold(4, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"attention or a recurrent layer behind the loss of {row.place} goes over the rows of the batch and "
                f"takes its {row.last:.0f} places for rows: is batch_first=True missing?",
                places=row.last,
            )
            for row in script_rows(window, "mixed-rows")
            if len(row.steps) >= self.looks_min
        )[:1]
