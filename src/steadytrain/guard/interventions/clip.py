from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live

LET_GO_STEPS = 16
"""A level that doubles has let go when nothing was clipped in so many steps."""


@final
@dataclass
class Clip(Intervention):
    """Clip the global gradient norm at a level that is usual in this run.

    The level is the 90th percentile of the applied norms in the last healthy steps. It is used on the gradients as the
    optimizer would apply them, after clipping of the script's own. If the script itself has clipped until then and does
    so no more, it is held until the script clips again.

    Args:
        level: the norm to clip at; 0 learns it from the run.
        doubling: steps after which the level has doubled, again and again, so that it lets go by itself; 0 keeps it.
    """

    level: float = 0.0
    doubling: int = 0
    replayed: ClassVar[bool] = True
    _level: float = 0.0
    _last_clipped: int = 0
    _stands_in: bool = False

    def check(self) -> None:
        if not (math.isfinite(self.level) and self.level >= 0):
            raise ValueError(f"level {self.level}: must be a number above 0, or 0 to learn it")
        if self.doubling < 0:
            raise ValueError(f"doubling {self.doubling}: must be a number of steps, or 0 to keep the level")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        self._stands_in = not self.level and not self.doubling and live.clipping_lost()
        self._level = self.level or live.usual_norm()
        if not self._level:
            live.cannot("no gradient norm was seen in a healthy step yet")
        self._last_clipped = live.step
        return {}, {"gradient_norm_max": self._level}

    def again(self, live: Live) -> tuple[Numbers, Numbers]:
        if not self.doubling:
            return {}, {}
        self.doubling = 0
        return self.apply(live)

    def gate(self, live: Live) -> str | None:
        norm = live.applied_norm()
        if norm is not None and norm > self._level > 0:
            live.scale_gradients(self._level / norm)
            self._last_clipped = live.step
        return None

    def updated(self, live: Live) -> None:
        if self.doubling:
            self._level *= 2 ** (1 / self.doubling)

    def revert(self, live: Live) -> None:
        if not self._stands_in:
            self._level = 0.0

    def is_over(self, live: Live) -> bool:
        if self._stands_in:
            return live.script_clips
        return not self._level or (self.doubling > 0 and live.step - self._last_clipped >= LET_GO_STEPS)
