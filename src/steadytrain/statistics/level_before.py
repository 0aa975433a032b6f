"""Where the loss stood in the training that a resume goes on with, and whether it stands higher now."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.core.model import Window
from steadytrain.statistics.script_rows import script_rows


@dataclass(frozen=True)
class LevelBefore:
    """Median and robust standard deviation of the last losses before, read at ``step``."""

    step: int
    level: float
    spread: float

    def is_passed(self, after: float, *, scales: float, share: float) -> bool:
        """Whether ``after`` is above the level by ``scales`` deviations and by ``share`` of the level."""
        return after > self.level + max(scales * self.spread, share * abs(self.level))

    def sentence(self, after: float, steps: int) -> str:
        return f"the loss stood at {self.level:.4g} before, and at {after:.4g} in the {steps} steps after"


def level_before(window: Window) -> LevelBefore | None:
    """None where no training before is known."""
    levels, spreads = script_rows(window, "level-before"), script_rows(window, "spread-before")
    if not levels or not spreads:
        return None
    return LevelBefore(int(levels[0].steps[0]), levels[0].last, spreads[0].last)
