"""A closure of L-BFGS that draws anew at each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class ChangingClosure(SourceRule):
    """The closure of L-BFGS draws new points, noise or a new batch at each call.

    Means:
        L-BFGS calls its closure many times in one step and takes the differences of the gradients for the curvature
        of one function. If the closure draws random points, noise or the next batch, each call has another function:
        the differences are mostly noise, the estimated curvature is wrong, and steps become far too long. The loss
        stalls, or explodes within some steps.

    Causes:
        - collocation points of a physics-informed network that are drawn inside the closure
        - `next(loader)` inside the closure
        - noise or augmentation inside the closure

    Next:
        1. Draw points or batch before `optimizer.step(closure)`, and use them in all of its calls.
        2. Or set the seed of their generator at the start of the closure.
        3. Or stay with Adam where the data must change.
    """

    kind: ClassVar[str] = "changing-closure"
    says: ClassVar[str] = (
        "draws new random points, noise or a new batch at each call of the closure: L-BFGS takes differences of "
        "gradients of different functions for curvature; draw once before the step"
    )
