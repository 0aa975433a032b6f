from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class PenalizeLogits(ChangeIntervention):
    """Add a z-loss: a penalty on the squared logsumexp of the logits.

    Args:
        weight: of the penalty.
    """

    weight: float = 1e-4

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.functions import ZLoss

        return ZLoss(self.weight)
