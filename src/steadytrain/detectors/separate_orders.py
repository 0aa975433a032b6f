"""Inputs and labels are brought into separate orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


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

    Next:
        1. Draw one order and apply it to both, or shuffle pairs.
        2. Read a few pairs of input and label.
    """

    kind: ClassVar[str] = "separate-orders"
    says: ClassVar[str] = (
        "changes the order of one of two variables that are paired row by row: inputs get the labels of other rows"
    )
