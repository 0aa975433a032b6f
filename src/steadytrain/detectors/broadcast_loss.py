"""Each prediction is compared with every target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class BroadcastLoss(ScriptRule):
    """Predictions [N, 1] are compared with targets [N]: the loss is a mean over all N x N pairs.

    Means:
        A difference of a column and a row is a table. Each prediction is pulled towards all targets of the batch, so
        the model learns their mean. The loss falls at first and then stays at the variance of the targets. The graph of
        the loss shows the shapes.

    Causes:
        - a last layer with one unit gives [N, 1], and the targets are [N]
        - `squeeze()` on one side only

    Next:
        1. Call `.squeeze(-1)` on the predictions, or `[:, None]` on the targets.
        2. Assert `prediction.shape == target.shape` before the loss.
    """

    looks_min: int = threshold(2, "looks that find it: the loss is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = [row for row in script_rows(window, "broadcast") if len(row.steps) >= self.looks_min]
        return tuple(
            self.warning(
                window,
                row,
                f"the loss of {row.place} compares each of {row.last:.0f} predictions with every target: their "
                "shapes are a column and a row, and make a table",
                rows=row.last,
            )
            for row in rows[:1]
        )
