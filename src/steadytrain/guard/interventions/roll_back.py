from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live


@final
@dataclass
class RollBack(Intervention):
    """Return to the last healthy state and go on past the offending data.

    Weights, buffers, optimizer state, and averages of the weights become what they were. Batches, random state,
    learning-rate schedules and gradient scalers go on. After PaLM (Chowdhery et al. 2022, section 5.1), which restarted
    100 steps before a spike and left out 200 to 500 batches.

    Args:
        margin: how many steps before the onset the state is at least; doubled each time the ladder comes back to it.
    """

    margin: int = 4
    replayed: ClassVar[bool] = True
    stays: ClassVar[bool] = True

    def check(self) -> None:
        if self.margin < 0:
            raise ValueError(f"margin {self.margin}: must be 0 or more steps")

    def why_not(self, live: Live) -> str | None:
        return live.copies.why_not

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        return live.roll_back(self.margin)

    again = apply
