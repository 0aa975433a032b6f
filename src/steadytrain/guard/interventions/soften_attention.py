from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention

if TYPE_CHECKING:
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class SoftenAttention(ChangeIntervention):
    """Bound attention scores s by cap * tanh(s / cap).

    Args:
        cap: the bound.
    """

    cap: float = 50.0

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.functions import AttentionSoftcap

        return AttentionSoftcap(self.cap)
