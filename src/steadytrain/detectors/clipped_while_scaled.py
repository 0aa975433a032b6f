"""Gradients are clipped before they are unscaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ClippedWhileScaled(ScriptRule):
    """Gradients are clipped while they still carry the loss scale: nearly all of each is cut away.

    Means:
        Under a gradient scaler gradients are many thousand times too large until they are unscaled. A limit that is
        meant for their own size then cuts every step down to a tiny fraction of what was asked for.

    Causes:
        - `clip_grad_norm_` before `scaler.unscale_(optimizer)`, or without it

    Next:
        1. Call `scaler.unscale_(optimizer)` right before clipping.
    """

    looks_min: int = threshold(2, "steps that were clipped so")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [row for row in script_rows(window, "clipped-scaled") if row.last >= self.looks_min]
        return tuple(
            self.warning(
                window,
                row,
                f"gradients were clipped at {row.last:.0f} steps while they still carried the loss scale: call "
                "scaler.unscale_(optimizer) before clipping",
                steps=row.last,
            )
            for row in rows[:1]
        )
