from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import ChangeIntervention
from steadytrain.guard.unfit import no_setting

if TYPE_CHECKING:
    from steadytrain.guard.live import Live
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class RaiseEpsilon(ChangeIntervention):
    """Raise the epsilon of the optimizer.

    Args:
        factor: what it is multiplied by.
    """

    factor: float = 1000.0
    replayed: ClassVar[bool] = True

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.hyper_parameters import Epsilon

        return Epsilon(self.factor)

    def why_not(self, live: Live) -> str | None:
        return no_setting(live, "epsilon", "eps")
