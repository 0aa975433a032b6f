"""A recurrence whose state grows in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class GrowingState(SourceRule):
    """A recurrent state is multiplied by a factor above 1 in every step, whatever the weights are.

    Means:
        The source of a module updates a state in a loop as `h = a * h + u`, and `a` is the exponential of something
        positive, or 1 plus something positive. The state then grows exponentially along the sequence, the loss begins
        hundreds of times too high, and no training can give the state a memory that fades. Long sequences overflow.

    Causes:
        - a state-space layer that computes `exp(dt * A)` with `A = exp(A_log)`, where `-exp(A_log)` is meant
        - `1 + sigmoid(g)` or `1 + rate` where `1 - rate` is meant

    Next:
        1. Put the minus sign into the exponent: `a = torch.exp(-rate)`, so that every factor is between 0 and 1.
        2. Print the norm of the state at the first and the last place of a sequence.
    """

    kind: ClassVar[str] = "growing-state"
    says: ClassVar[str] = (
        "multiplies the recurrent state by a factor that is above 1 whatever the weights, so it grows in every step"
    )
