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
class LowerMomentum(ChangeIntervention):
    """Lower the momentum, or the decay of the first moment.

    Args:
        value: the momentum where it was higher.
    """

    value: float = 0.8
    replayed: ClassVar[bool] = True

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.hyper_parameters import Momentum

        return Momentum(self.value)

    def why_not(self, live: Live) -> str | None:
        return no_setting(live, "momentum", "betas", "momentum")
