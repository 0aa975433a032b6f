"""A scale that is made positive by cutting it off, or by a bare square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class CutOffScale(SourceRule):
    """A variance or scale that the network gives is made positive by a ReLU, a clamp near 0, or a square.

    Means:
        Where the output is negative, which is about half of the rows at first, the scale stands at its floor. A
        likelihood divides by it: with a floor of 1e-6 an error of 1 costs half a million. The gradient does not pass
        the cut, so the scale cannot leave the floor, and only the mean is trained, by far too large steps.

    Causes:
        - `variance = F.relu(raw) + 1e-6`, `sigma = head(h).clamp(min=1e-6)`
        - a head that ends in `nn.ReLU()`
        - `scale = raw.square() + 1e-8`: wherever the output passes 0, so does the scale

    Next:
        1. Use `F.softplus(raw) + 1e-3`, or give out the logarithm: `scale = raw.clamp(-7, 7).exp()`.
        2. Print the share of scales at the floor in the first step.
    """

    kind: ClassVar[str] = "cut-off-scale"
    says: ClassVar[str] = (
        "makes a variance or scale positive by a ReLU, a clamp near 0 or a square: where the output is negative, or "
        "passes 0, the scale is at the floor, the loss explodes, and the gradient of the scale is 0"
    )
