"""Inputs and labels are brought into separate orders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import SourceRule
from steadytrain.statistics.script_rows import script_rows

OTHERS = {
    "half-sorted": "lists files in no order, and pairs them by their place with sorted files of another folder",
    "separate-splits": "splits inputs and targets by two draws: inputs get the labels of other rows",
}
"""Other ways to the same, by the kind of their rows."""


@final
@dataclass(frozen=True)
class SeparateOrders(SourceRule):
    """Inputs and labels are brought into separate orders.

    Means:
        The source of the script shuffles, sorts or selects the rows of one variable and pairs them with another one
        that was there before and was not moved with it, or was moved by a draw of its own. Inputs then have the labels
        of other rows: nothing can be learned but their frequencies.

    Causes:
        - `x = x[torch.randperm(n)]` without the same for `y`, or with a second draw
        - two calls of `shuffle` without one seed before both
        - a list that is sorted, or made unique by `set`, after its labels were read
        - files of images and of masks from two `os.listdir`, of which one is not sorted. Where none is sorted it is a
          note, since file systems often give equal names the same order
        - `train_test_split(x)` and `train_test_split(y)`, each with a draw of its own

    Next:
        1. Draw one order and apply it to both, or shuffle pairs; split both in one call; sort both listings.
        2. Read a few pairs of input and label.
    """

    kind: ClassVar[str] = "separate-orders"
    says: ClassVar[str] = (
        "changes the order of one of two variables that are paired row by row: inputs get the labels of other rows"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = super().check(window)
        for kind, says in OTHERS.items():
            rows = script_rows(window, kind)
            lines = float(len(rows))
            found = found or tuple(self.warning(window, row, f"{row.place} {says}", lines=lines) for row in rows[:1])
        told = "pairs files of two folders by their place, in the order of the file system: sort both"
        return found or tuple(
            replace(self.warning(window, row, f"{row.place} {told}"), severity="note")
            for row in script_rows(window, "unsorted-listing")[:1]
        )
