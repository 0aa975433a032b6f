from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class SafeSoftmax(ChangeIntervention):
    """Return zeros from a softmax over minus infinity only, instead of NaN."""

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.functions import SafeSoftmax

        return SafeSoftmax()
