"""Distribution of numbers in a fixed number of bins."""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import FloatArray, IntArray

BINS_PER_DOUBLING = 16
"""Quantiles are accurate to about 2 %."""

DOUBLINGS = 48


class Spread:
    """Counts numbers from 1 up on a logarithmic scale. Smaller ones count as 0."""

    def __init__(self) -> None:
        self._counts = np.zeros(BINS_PER_DOUBLING * DOUBLINGS + 1, np.int64)
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def add(self, values: IntArray | FloatArray) -> None:
        if not len(values):
            return
        bins = np.zeros(len(values), np.int64)
        above = values >= 1
        bins[above] = 1 + np.floor(np.log2(values[above]) * BINS_PER_DOUBLING).astype(np.int64)
        self._counts += np.bincount(np.minimum(bins, len(self._counts) - 1), minlength=len(self._counts))
        self.count += len(values)
        self.total += float(values.sum())
        self.largest = max(self.largest, float(values.max()))

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The number that a ``share`` of all does not exceed, accurate to one bin."""
        place = int(np.searchsorted(np.cumsum(self._counts), share * self.count))
        if place == 0:
            return 0.0
        return min(float(2 ** ((place - 0.5) / BINS_PER_DOUBLING)), self.largest)
