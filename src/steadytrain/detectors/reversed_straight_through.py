"""A straight-through estimator the wrong way round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class ReversedStraightThrough(SourceRule):
    """A straight-through estimator is the wrong way round: `q + (z - q).detach()`.

    Means:
        `z + (q - z).detach()` has the value of the discrete `q` and hands its gradient to the continuous `z`. The other
        way round the network goes on with `z`, as if nothing were quantized, and the gradient goes to `q`. In
        `hard - soft + soft.detach()` the gradient reaches `soft` with the sign reversed. Training looks well; what is
        decoded of the codes is bad, or the choice does not learn. This is read in the source.

    Causes:
        - `q + (z - q).detach()`, `z.detach() - q.detach() + q`: the two sides are swapped
        - `hard - soft + soft.detach()` in place of `hard - soft.detach() + soft`

    Next:
        1. Write `z + (q - z).detach()`, or `hard - soft.detach() + soft`.
        2. Compare the result with `q`: they have to be equal. Look at the gradient of `z`: it has to be there.
    """

    kind: ClassVar[str] = "reversed-straight-through"
    says: ClassVar[str] = (
        "reverses the straight-through estimator: the value has to be that of the discrete side, and the gradient has "
        "to reach the continuous one with its sign, as in z + (q - z).detach() or hard - soft.detach() + soft"
    )
