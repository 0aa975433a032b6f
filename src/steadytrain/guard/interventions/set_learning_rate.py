from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live


@final
@dataclass
class SetLearningRate(Intervention):
    """Set the learning rate, or multiply that of the script.

    Args:
        value: of the first group; the other groups keep their ratio to it. 0 for the script's own.
        factor: multiplies it.
    """

    value: float = 0.0
    factor: float = 1.0
    replayed: ClassVar[bool] = True

    def check(self) -> None:
        for name, number in (("value", self.value), ("factor", self.factor)):
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(f"{name} {number}: must be a number, not negative")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        rate = live.rate()
        return {"learning_rate": rate}, {"learning_rate": (self.value or rate) * self.factor}

    def begins(self, live: Live) -> None:
        rate = live.rate()
        ratio = (self.value / rate if self.value and rate else 1.0) * self.factor
        for group in live.groups:
            if group.get("lr") is not None:
                live.set_group(group, "lr", float(group["lr"]) * ratio)
