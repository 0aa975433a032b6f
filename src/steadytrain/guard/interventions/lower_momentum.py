from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
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
