"""A weighted sampler has fewer weights than its data set has rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, last_value, script_rows


@final
@dataclass(frozen=True)
class UndrawnRows(ScriptRule):
    """A weighted sampler has fewer weights than the data set has rows: the other rows are never drawn.

    Means:
        `WeightedRandomSampler` draws the numbers of rows, one for each weight that it is given. With a weight for each
        class it draws from as many rows as there are classes, the first ones of the data set. The loss falls to zero
        at once, and the evaluation stays bad. Up to 100 weights, or a tenth of the rows, are a warning, else it is a
        note: a list that is a little short may be meant.

    Causes:
        - the weights of the classes, `1 / counts`, in place of `class_weights[labels]`
        - weights of another split, or from before rows were added

    Next:
        1. Give the sampler a weight for each row: `weights = class_weights[labels]`.
        2. Print how many different rows an epoch draws.
    """

    states_fact: ClassVar[bool] = True
    few_rows: int = threshold(100, "rows that can be drawn: as many as a task has classes. Chosen")
    few_share: float = threshold(0.1, "of the rows. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(self._of_sampler(window, row) for row in script_rows(window, "drawable-rows")[:1])

    def _of_sampler(self, window: Window, row: ScriptRow) -> Symptom:
        rows = last_value(window, "rows-of", row.place) or 0.0
        few = row.last <= self.few_rows or row.last <= self.few_share * rows
        said = (
            f"{row.place} has {row.last:.0f} weights for {rows:.0f} rows: only the first {row.last:.0f} rows of the "
            "data set are ever drawn. It takes a weight for each row, not for each class"
        )
        return (self.warning if few else self.note)(window, row, said, weights=row.last, rows=rows)
