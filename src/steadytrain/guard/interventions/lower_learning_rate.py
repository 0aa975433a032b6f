from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live


@final
@dataclass
class LowerLearningRate(Intervention):
    """Multiply the learning rate by a factor, and return to the script's own over some steps.

    The schedule of the script goes on beneath. If the rate had risen since the state that the run rolled back to, the
    factor is that much lower. The ladder multiplies it again each time it comes back to this one.

    Args:
        factor: share of the script's rate.
        rewarm: steps over which the rate returns, in equal ratios, once the intervention is taken back.
    """

    factor: float = 0.3
    rewarm: int = 100
    replayed: ClassVar[bool] = True
    _share: float = 1.0
    _returns_since: int = 0

    def check(self) -> None:
        if not 0.0 < self.factor < 1.0:
            raise ValueError(f"factor {self.factor}: must lie between 0 and 1")
        if self.rewarm < 1:
            raise ValueError(f"rewarm {self.rewarm}: must be at least 1 step")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        return self._lower(live, min(self.factor, live.rate_then_over_now()))

    def again(self, live: Live) -> tuple[Numbers, Numbers]:
        return self._lower(live, self._now(live) * self.factor)

    def _lower(self, live: Live, share: float) -> tuple[Numbers, Numbers]:
        before, rate = self._now(live), live.rate()
        self._share, self._returns_since = max(live.lowest_share, share), 0
        return (
            {"learning_rate": rate * before, "share": before},
            {"learning_rate": rate * self._share, "share": self._share},
        )

    def begins(self, live: Live) -> None:
        share = self._now(live)
        for group in live.groups:
            if share < 1.0 and group.get("lr") is not None:
                live.set_group(group, "lr", float(group["lr"]) * share)

    def revert(self, live: Live) -> None:
        self._returns_since = max(1, live.step)

    def is_over(self, live: Live) -> bool:
        return self._now(live) >= 1.0

    def _now(self, live: Live) -> float:
        if not self._returns_since:
            return self._share
        passed = min(1.0, (live.step - self._returns_since) / self.rewarm)
        return float(self._share ** (1.0 - passed))
