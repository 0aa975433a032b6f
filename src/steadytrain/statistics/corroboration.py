"""What else changed where a loss rose: the gradient norm, the learning rate, or the unit of the loss.

A rise that another signal confirms needs less evidence of its own; one in which the loss and its gradient grew by the
same factor at once is a loss that was reweighted. Not here: how far the loss rose (``progress``).
"""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Series, Window
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA

BEFORE_ROWS, BEFORE_ROWS_MIN, AFTER_ROWS = 32, 5, 5
NEAR_ROWS = 2
NORM_CHANGE, NORM_SCALES, NORM_SCALE_MIN = 0.7, 4.0, 0.1
"""The logarithm of the gradient norm changes by a factor of two, by four of its scales, each at least a tenth."""

RATE_RATIO = 12.0
"""A rate this many times the largest before. Constant warm-ups end in a jump by three or ten (1512.03385, 4.2)."""

RATE_ROWS, RATE_STEADY = 8, 1.5

RESCALED_MIN, RESCALED_MAX = 2.0, 10.0
RESCALED_APART, RESCALED_FIRST, RESCALED_ROWS = 1.35, 3, 16
"""A reweighted loss: both grow by a factor within these bounds, the two factors differ by less than the next, and so do
the first values and those after them. Chosen on own runs (docs/detectors.md)."""


def aligned(series: Series, steps: IntArray) -> FloatArray:
    """The values of ``series`` at ``steps``, NaN where it has none."""
    found = np.full(len(steps), np.nan)
    if len(series):
        at = np.minimum(np.searchsorted(series.steps, steps), len(series) - 1)
        here = series.steps[at] == steps
        found[here] = series.values[at[here]]
    return found


def rate_jump(rates: FloatArray, *, since: int = 0) -> int | None:
    """The first row from ``since`` on where a steady rate became more than ``RATE_RATIO`` times the largest before."""
    largest = np.maximum.accumulate(rates)
    for row in (1 + np.flatnonzero(rates[1:] > RATE_RATIO * largest[:-1])).tolist():
        before = rates[max(0, row - BEFORE_ROWS_MIN + 1) : row]
        steady = len(before) >= BEFORE_ROWS_MIN - 1 and before.min() > 0 and before.max() < RATE_STEADY * before.min()
        if steady and row >= since:
            return int(row)
    return None


class Corroboration:
    """The other signals of a window at the steps of its loss."""

    def __init__(self, window: Window, loss: Series) -> None:
        self._loss = loss.values
        self._norm = aligned(window.applied("gradient_norm"), loss.steps)
        self._rate = aligned(window.applied("learning_rate"), loss.steps)

    def confirms(self, row: int) -> bool:
        """Whether another signal changed at once near ``row``, where the loss begins to rise."""
        near = range(max(row - NEAR_ROWS, BEFORE_ROWS_MIN), row + NEAR_ROWS + 1)
        return self.rate_jumped(row) or any(self._norm_changed(at) for at in near)

    def rate_jumped(self, row: int) -> bool:
        """Whether the rate jumped to one never seen in the rows up to ``row``."""
        return rate_jump(self._rate[: row + 1], since=row - RATE_ROWS) is not None

    def _norm_changed(self, row: int) -> bool:
        before, after = self._norm[max(0, row - BEFORE_ROWS) : row], self._norm[row : row + AFTER_ROWS]
        before, after = before[before > 0], after[after > 0]
        if len(before) < BEFORE_ROWS_MIN or len(after) < AFTER_ROWS - 1:
            return False
        logs = np.log(before)
        scale = max(MAD_TO_SIGMA * median(np.abs(logs - median(logs))), NORM_SCALE_MIN)
        change = median(np.log(after)) - median(logs[-RESCALED_ROWS:])
        return abs(change) >= max(NORM_CHANGE, NORM_SCALES * scale)

    def rescaled(self, row: int, stop: int) -> float | None:
        """The factor by which the loss and its gradient norm both grew near ``row``, None where they did not."""
        if self.rate_jumped(row):
            return None
        factors = (self._rescaled(at, stop) for at in range(row, row + NEAR_ROWS + 1))
        return next((factor for factor in factors if factor is not None), None)

    def _rescaled(self, row: int, stop: int) -> float | None:
        before, after = slice(max(0, row - RESCALED_ROWS), row), slice(row, min(stop, row + RESCALED_ROWS))
        losses, norms = (self._loss[before], self._loss[after]), (self._norm[before], self._norm[after])
        if min(map(len, losses)) < BEFORE_ROWS_MIN or not losses[0].min() > 0 or not norms[0].min() > 0:
            return None
        loss, norm = (median(late) / median(early) for early, late in (losses, norms))
        apart = max(loss / norm, norm / loss, *(_step(late) for _, late in (losses, norms)))
        return loss if RESCALED_MIN <= loss <= RESCALED_MAX and apart < RESCALED_APART else None


def _step(values: FloatArray) -> float:
    """How the first values differ from those after them: one for a level that is reached at once."""
    first, rest = median(values[:RESCALED_FIRST]), median(values[RESCALED_FIRST:])
    return max(first / rest, rest / first) if min(first, rest) > 0 else np.inf
