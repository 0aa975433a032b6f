"""Each prediction is compared with every target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

SAID = {
    "broadcast": "compares each of {:.0f} predictions with every target: their shapes are a column and a row, and make "
    "a table",
    "outer-product": "multiplies each of {:.0f} values with the weights of all rows: their shapes are a column and a "
    "row, and make a table",
}
"""Measures of the table ``script``, and what the loss does there."""


@final
@dataclass(frozen=True)
class BroadcastLoss(ScriptRule):
    """Predictions [N, 1] meet targets or weights [N]: the loss is a mean over all N x N pairs.

    Means:
        A difference of a column and a row is a table. Each prediction is pulled towards all targets of the batch, so
        the model learns their mean. The loss falls at first and then stays at the variance of the targets. The graph of
        the loss shows the shapes. A product of both is the same mistake: each value is multiplied with the weights (or
        advantages) of all rows, and their mean is a product of two means, in which no row has a weight of its own.

    Causes:
        - a last layer with one unit gives [N, 1], and the targets are [N]
        - `squeeze()` on one side only
        - an advantage [N, 1], from a critic with one unit, times a log-probability [N]

    Next:
        1. Call `.squeeze(-1)` on the predictions, or `[:, None]` on the targets.
        2. Assert `prediction.shape == target.shape` before the loss.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it: the loss is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(window, row, f"the loss of {row.place} {said.format(row.last)}", rows=row.last)
            for measure, said in SAID.items()
            for row in script_rows(window, measure)
            if len(row.steps) >= self.looks_min
        )[:1]
