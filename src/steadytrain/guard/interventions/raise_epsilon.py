from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
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
