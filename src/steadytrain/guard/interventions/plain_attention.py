from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class PlainAttention(ChangeIntervention):
    """Compute attention by plain operations in place of fused ones."""

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.kernels import MathAttention

        return MathAttention()
