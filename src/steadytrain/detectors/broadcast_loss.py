"""Each prediction is compared with every target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

PRODUCT = "multiplies each of {:.0f} values with the weights of all rows: [N] with [N, 1] makes a table [N, N]"
ROW, COLUMN, TABLE = 1.0, 2.0, 3.0
"""Values of the measure ``broadcast-targets``: targets [N], [N, 1] and [N, N]."""

STRETCHED = (
    "the loss of {} compares each target with {:.0f} values of a prediction: an axis of the targets has length 1, and "
    "was stretched to the shape of the predictions"
)


@final
@dataclass(frozen=True)
class BroadcastLoss(ScriptRule):
    """Predictions [N, 1] meet targets or weights [N]: the loss is a mean over all N x N pairs.

    Means:
        A difference of a column and a row is a table. Each prediction is pulled towards all targets of the batch, so
        the model learns their mean. The loss falls at first and then stays at the variance of the targets. The graph of
        the loss shows the shapes. A product of both is the same mistake: each value is multiplied with the weights (or
        advantages) of all rows, and their mean is a product of two means, in which no row has a weight of its own.

        Where each target is compared with several values of one prediction, [B, T, 1] with [B, T, C], it is a note:
        it may be meant.

    Causes:
        - a last layer with one unit gives [N, 1], and the targets are [N]
        - `squeeze()` on one side only
        - targets that became a table before: rewards [N] plus values [N, 1]
        - an advantage [N, 1], from a critic with one unit, times a log-probability [N]

    Next:
        1. Call `.squeeze(-1)` on the side that is [N, 1], or `[:, None]` on the one that is [N].
        2. Targets that are [N, N] before the loss: mend the line that makes them, where [N] meets [N, 1].
        3. Assert `prediction.shape == target.shape` before the loss.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it: the loss is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(self._symptoms(window))[:1]

    def _symptoms(self, window: Window) -> Iterator[Symptom]:
        columns, targets = (
            {row.place: row.last for row in script_rows(window, measure)}
            for measure in ("broadcast-column", "broadcast-targets")
        )
        for row in script_rows(window, "broadcast"):
            if len(row.steps) >= self.looks_min:
                against = targets.get(row.place)
                told = _compared(int(row.last), columns.get(row.place), against)
                meets = {} if against is None else {"table" if against == TABLE else "column": 1.0}
                yield self.warning(window, row, f"the loss of {row.place} {told}", rows=row.last, **meets)
        for row in script_rows(window, "outer-product"):
            if len(row.steps) >= self.looks_min:
                told = PRODUCT.format(row.last)
                yield self.warning(window, row, f"the loss of {row.place} {told}", rows=row.last)
        for row in script_rows(window, "stretched-target"):
            if len(row.steps) >= self.looks_min:
                yield self.note(window, row, STRETCHED.format(row.place, row.last), values=row.last)


def _compared(count: int, column: float | None, targets: float | None) -> str:
    """What a loss does whose predictions are a ``column`` or a vector, with the shapes as far as they are known."""
    each = f"compares each of {count} predictions with"
    if column is None:
        return f"{each} every target: the shapes of both sides differ, and make a table"
    given = f"[{count}, 1]" if column else f"[{count}]"
    if targets == TABLE:
        return (
            f"{each} {count} targets: predictions are {given}, and the targets were a table [{count}, {count}] before "
            "they met"
        )
    wanted = {ROW: f"[{count}]", COLUMN: f"[{count}, 1]"}.get(targets or 0.0, "of another shape")
    return f"{each} every target: predictions {given} and targets {wanted} make a table [{count}, {count}]"
