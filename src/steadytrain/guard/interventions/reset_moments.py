from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import ChangeIntervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class ResetMoments(ChangeIntervention):
    """Clear the moments of the optimizer, and warm the learning rate up again.

    Args:
        rewarm: steps over which the rate rises linearly to its value.
    """

    rewarm: int = 50
    stays: ClassVar[bool] = True
    _since: int = 0

    def check(self) -> None:
        if self.rewarm < 1:
            raise ValueError(f"rewarm {self.rewarm}: must be at least 1 step")

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.updates import ResetMoments as Reset

        return Reset()

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        super().apply(live)
        self._since = live.step
        return {}, {"rewarm_steps": float(self.rewarm)}

    again = apply

    def begins(self, live: Live) -> None:
        share = (live.step + 1 - self._since) / self.rewarm
        for group in live.groups:
            if share < 1.0 and group.get("lr") is not None:
                live.set_group(group, "lr", float(group["lr"]) * share)

    def is_over(self, live: Live) -> bool:
        return live.step - self._since >= self.rewarm
