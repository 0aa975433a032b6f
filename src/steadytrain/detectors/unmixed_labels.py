"""Mixed inputs with the labels of one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class UnmixedLabels(SourceRule):
    """Inputs are mixed with those of other rows (mixup, cutmix), and their labels are not.

    Means:
        The source of the script blends each input with that of another row, or puts a part of it in, and the loss
        knows the label of the first row alone, or gives the two labels the wrong weights. Up to half of what an input
        shows is then labelled wrongly.

    Causes:
        - `x = lam * x + (1 - lam) * x[order]`, and `loss(model(x), y)`
        - `lam * loss(out, y[order]) + (1 - lam) * loss(out, y)`

    Next:
        1. Use both labels: `lam * loss(out, y) + (1 - lam) * loss(out, y[order])`.
        2. In cutmix, take `lam` from the area that was really left.
    """

    kind: ClassVar[str] = "unmixed-labels"
    says: ClassVar[str] = "mixes the inputs of two rows, and the labels are not mixed with the same weights"
