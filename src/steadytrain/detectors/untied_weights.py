"""Embeddings and head begin as one and go apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UntiedWeights(ScriptRule):
    """Embedding and head began with the same values in two tensors, and are trained apart.

    Means:
        Before the first update a table of embeddings and another matrix had the same values, but not the same memory.
        After an update they differ. Weights that are meant to be one have become two: the model has more parameters
        than planned, and a checkpoint that keeps one of them loses the other.

    Causes:
        - the model was copied, moved, wrapped or loaded after the weights were tied
        - `head.weight.data = table.weight.data.clone()`, or `copy_`, in place of `head.weight = table.weight`
        - no fault: a head that is only to begin where the embedding does

    Next:
        1. Tie last: `head.weight = table.weight`, then make the optimizer. In transformers call `model.tie_weights()`.
        2. Compare `data_ptr()` of both.
    """

    looks_min: int = threshold(2, "looks that find them apart")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [
            row
            for row in script_rows(window, "untied")
            if (row.values > 0.0).sum() >= self.looks_min and row.last > 0.0
        ]
        return tuple(
            Symptom(
                name="untied-weights",
                severity="warning",
                first_step=int(row.steps[row.values > 0.0][0]),
                last_step=int(window.steps[-1]),
                message=f"{row.place} began with the same values and are two tensors, which are trained apart",
                signals=("script.value",),
                tensors=tuple(row.place.split(" and ")),
            )
            for row in rows[:1]
        )
