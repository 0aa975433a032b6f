from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live


@final
@dataclass
class HoldLearningRate(Intervention):
    """Hold the learning rate at most where it was in the state that the run rolled back to.

    Only where it has jumped since, in one of the groups. A group that was frozen in that state is held at the highest
    rate of the others. It is taken back when the script's own rate has come down again.

    Args:
        jump: how many times as high the rate is for that.
    """

    jump: float = 2.0
    replayed: ClassVar[bool] = True
    conditional: ClassVar[bool] = True
    _highest: dict[int, float] = field(default_factory=dict)

    def check(self) -> None:
        if not self.jump >= 1.0:
            raise ValueError(f"jump {self.jump}: must be at least 1")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        pairs = [(float(group["lr"]), then) for group, then in live.groups_then() if then > 0]
        now, then = max(pairs, key=lambda pair: pair[0] / pair[1], default=(0.0, 1.0))
        if now < self.jump * then:
            return {}, {}
        self._highest = {id(group): rate for group, rate in live.groups_then()}
        return {"learning_rate": now}, {"learning_rate": then}

    again = apply

    def begins(self, live: Live) -> None:
        for group in live.groups:
            highest = self._highest.get(id(group))
            if highest is not None and float(group["lr"]) > highest:
                live.set_group(group, "lr", highest)

    def is_over(self, live: Live) -> bool:
        rates = {id(group): float(group["lr"]) for group in live.groups if group.get("lr") is not None}
        return not any(rates.get(group, 0.0) > self.jump * highest for group, highest in self._highest.items())
