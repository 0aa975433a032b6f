from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import ChangeIntervention
from steadytrain.guard.unfit import no_scaler

if TYPE_CHECKING:
    from steadytrain.guard.live import Live
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class LowerLossScale(ChangeIntervention):
    """Lower the scale of every gradient scaler once.

    Args:
        factor: what it is multiplied by.
    """

    factor: float = 0.0625
    stays: ClassVar[bool] = True

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.updates import LossScale

        return LossScale(factor=self.factor)

    def why_not(self, live: Live) -> str | None:
        return no_scaler(live)
