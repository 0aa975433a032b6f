from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live


@final
@dataclass
class Clip(Intervention):
    """Clip the global gradient norm at a level that is usual in this run.

    The level is the 90th percentile of the applied norms in the last healthy steps. It is used on the gradients as the
    optimizer would apply them, after clipping of the script's own.

    Args:
        level: the norm to clip at; 0 learns it from the run.
    """

    level: float = 0.0
    replayed: ClassVar[bool] = True
    _level: float = 0.0

    def check(self) -> None:
        if not (math.isfinite(self.level) and self.level >= 0):
            raise ValueError(f"level {self.level}: must be a number above 0, or 0 to learn it")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        self._level = self.level or live.usual_norm()
        if not self._level:
            live.cannot("no gradient norm was seen in a healthy step yet")
        return {}, {"gradient_norm_max": self._level}

    def gate(self, live: Live) -> None:
        norm = live.applied_norm()
        if norm is not None and norm > self._level > 0:
            live.scale_gradients(self._level / norm)

    def revert(self, live: Live) -> None:
        self._level = 0.0
