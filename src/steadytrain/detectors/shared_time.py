"""One time for the whole batch of a diffusion model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SharedTime(ScriptRule):
    """A model that predicts noise gets one time for all rows of a batch.

    Means:
        The times are drawn once a step and not once a row. The loss is right on average and jumps from step to step,
        because an early and a late time cost so differently; the gradients are as noisy as with a batch of one in that
        direction. A note: it trains, and more slowly.

    Causes:
        - `torch.randint(0, steps, (1,))`, expanded to the batch
        - a time that is drawn outside of the function that gets the batch

    Next:
        1. Draw `torch.randint(0, steps, (len(x),))`.
    """

    looks_min: int = threshold(4, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="shared-time",
                severity="note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"the loss of {row.place} has one time for all rows of a batch, so it jumps from step to step",
                signals=("script.value",),
                numbers={"times": row.last},
            )
            for row in script_rows(window, "shared-time")
            if len(row.steps) >= self.looks_min
        )[:1]
