from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from steadytrain.guard.intervention import ChangeIntervention
from steadytrain.guard.unfit import no_scaler

if TYPE_CHECKING:
    from steadytrain.guard.live import Live
    from steadytrain.trial_runs.changes import LiveChange


@final
@dataclass
class DynamicLossScale(ChangeIntervention):
    """Let every gradient scaler adapt its scale, also one that the script fixed.

    For a script whose scaler never grows or backs off (a huge growth interval, factors of 1). A scale that the script
    multiplies by hand, without a GradScaler, is not changed. When it is taken back the settings return, and the scale
    stays.

    Args:
        scale: set once; 0 keeps the present one.
        growth: what the scale is multiplied by after ``interval`` steps without an overflow.
        backoff: what it is multiplied by after an overflow.
        interval: steps.
    """

    scale: float = 0.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def check(self) -> None:
        self.change().check()

    def change(self) -> LiveChange:
        from steadytrain.trial_runs.changes.loss_scales import DynamicLossScale as Dynamic

        return Dynamic(self.scale, self.growth, self.backoff, self.interval)

    def why_not(self, live: Live) -> str | None:
        return no_scaler(live)
