"""How fast the weight tensors of a model grow or shrink together, from one reading of their norms to the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from steadytrain.core.model import FloatArray, Window
from steadytrain.statistics.medians import median
from steadytrain.statistics.table_episodes import applied_cells

SPAN_MIN = 4
"""Steps between two readings: closer ones say little."""


@dataclass(frozen=True)
class CommonGrowth:
    """From step ``since`` to ``until``: how much the logarithm of each tensor's norm ``moves`` a step."""

    since: int
    until: int
    moves: FloatArray

    @property
    def tensors(self) -> int:
        return len(self.moves)

    @cached_property
    def median(self) -> float:
        """The median over the tensors."""
        return median(self.moves)

    def near(self, apart: float) -> float:
        """The share of the tensors that are within the share ``apart`` of the median."""
        return float((np.abs(self.moves - self.median) <= apart * abs(self.median)).mean())


def growths(window: Window, *, tensors_min: int) -> list[CommonGrowth]:
    """One for each pair of readings of ``tensors_min`` tensors or more, oldest first. Tensors whose norm is 0, and
    biases, do not count."""
    cells = applied_cells(window, "tensors", "weight_norm")
    if cells is None or len(cells) < 2:
        return []
    kept = np.array([not name.endswith("bias") for name in cells.rows])
    found = []
    at = 0
    for now in range(1, len(cells)):
        span = int(cells.steps[now] - cells.steps[at])
        if span < SPAN_MIN:
            continue
        before, after = cells.values[at][kept], cells.values[now][kept]
        known = np.isfinite(before) & np.isfinite(after) & (before > 0.0) & (after > 0.0)
        if known.sum() >= tensors_min:
            moves = np.log(after[known] / before[known]) / span
            found.append(CommonGrowth(int(cells.steps[at]), int(cells.steps[now]), moves))
        at = now
    return found
