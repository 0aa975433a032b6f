"""Returns that stand in the order of the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class ReversedReturns(SourceRule):
    """Discounted returns are summed up from the last step backwards and never put back in time order.

    Means:
        The source of the script goes through the rewards from the end, adds up what follows, and appends it to a list:
        the first entry is the return of the last step. What the list is paired with was collected forwards, so the
        first action gets the return of the last, and the last that of the first. The loss looks as usual, and the
        policy learns little or the opposite. A list that is filled from the front and then turned round is as wrong.

    Causes:
        - `returns.append(total)` in a loop over `reversed(rewards)`, without `returns.reverse()` after it
        - `returns.insert(0, total)`, and `returns[::-1]` as well

    Next:
        1. Print the returns of one episode whose rewards are all 1: they have to fall towards its end.
        2. Turn the list round once, per episode.
    """

    kind: ClassVar[str] = "reversed-returns"
    says: ClassVar[str] = (
        "collects discounted returns from the last step backwards and does not put them back in time order: each "
        "action gets the return of another step"
    )
