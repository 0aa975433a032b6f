from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class ClipUpdates(ChangeIntervention):
    """Limit each update by its root mean square over the learning rate.

    After Adafactor and StableAdamW.
    """

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.updates import ClipUpdates

        return ClipUpdates()
