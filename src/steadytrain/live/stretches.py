"""A signal over a run of any length in bounded memory: the smallest and largest value of each stretch of steps.

When the stretches run out, neighbours are joined and each covers twice as many steps. Means never appear here: they
would hide a spike. A value that is not finite is counted in its stretch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadytrain.core.model import FloatArray, IntArray

STRETCHES_MAX = 1024
"""Twice the dots of a wide terminal: 250 columns of braille have 500."""


@dataclass(frozen=True)
class Stretched:
    """Stretches in the order of steps: NaN where a stretch has no finite value, ``bad`` counts those that are not.

    ``sample`` is the first finite value of each stretch.
    """

    first_step: int
    last_step: int
    sample: FloatArray
    smallest: FloatArray
    largest: FloatArray
    bad: IntArray


class Stretches:
    """Takes values as they come, and joins stretches so that never more than ``stretches_max`` are held."""

    def __init__(self, stretches_max: int = STRETCHES_MAX) -> None:
        assert stretches_max % 2 == 0
        self._count_max = stretches_max
        self._first: int | None = None
        self._last = 0
        self._width = 1
        self._sample = np.full(stretches_max, np.nan)
        self._smallest = np.full(stretches_max, np.inf)
        self._largest = np.full(stretches_max, -np.inf)
        self._bad = np.zeros(stretches_max, np.int64)

    def add(self, steps: IntArray, values: FloatArray) -> None:
        """Values at steps; a step before the first counts as the first."""
        if not len(steps):
            return
        if self._first is None:
            self._first = int(steps[0])
        self._last = max(self._last, int(steps.max()))
        while (self._last - self._first) // self._width >= self._count_max:
            self._join()
        at = np.maximum(steps - self._first, 0) // self._width
        finite = np.isfinite(values)
        first = np.full(self._count_max, np.nan)
        first[at[finite][::-1]] = values[finite][::-1]  # of several with the same place the last one stays
        self._sample = np.where(np.isnan(self._sample), first, self._sample)
        np.minimum.at(self._smallest, at[finite], values[finite])
        np.maximum.at(self._largest, at[finite], values[finite])
        np.add.at(self._bad, at[~finite], 1)

    def held(self) -> Stretched | None:
        """The stretches so far, None before the first value."""
        if self._first is None:
            return None
        count = (self._last - self._first) // self._width + 1
        known = np.isfinite(self._smallest[:count])
        return Stretched(
            self._first,
            self._last,
            self._sample[:count].copy(),
            np.where(known, self._smallest[:count], np.nan),
            np.where(known, self._largest[:count], np.nan),
            self._bad[:count].copy(),
        )

    def _join(self) -> None:
        half = self._count_max // 2
        self._smallest = _padded(self._smallest.reshape(half, 2).min(axis=1), self._count_max, np.inf)
        self._largest = _padded(self._largest.reshape(half, 2).max(axis=1), self._count_max, -np.inf)
        pairs = self._sample.reshape(half, 2)
        self._sample = _padded(np.where(np.isnan(pairs[:, 0]), pairs[:, 1], pairs[:, 0]), self._count_max, np.nan)
        bad = np.zeros(self._count_max, np.int64)
        bad[:half] = self._bad.reshape(half, 2).sum(axis=1)
        self._bad = bad
        self._width *= 2


def _padded(values: FloatArray, length: int, filler: float) -> FloatArray:
    padded = np.full(length, filler)
    padded[: len(values)] = values
    return padded


def of_values(steps: IntArray, values: FloatArray) -> Stretched | None:
    """Each value as a stretch of its own."""
    if not len(steps):
        return None
    finite = np.where(np.isfinite(values), values, np.nan)
    return Stretched(int(steps[0]), int(steps[-1]), finite, finite, finite, (~np.isfinite(values)).astype(np.int64))


def resampled(held: Stretched, count: int) -> Stretched:
    """``held`` in ``count`` stretches. Where there are fewer, neighbouring columns show the same one."""
    total = len(held.smallest)
    edges = np.arange(count) * total // count
    if total <= count:
        parts = (held.sample[edges], held.smallest[edges], held.largest[edges], held.bad[edges])
    else:
        parts = (
            held.sample[edges],
            np.fmin.reduceat(held.smallest, edges),
            np.fmax.reduceat(held.largest, edges),
            np.add.reduceat(held.bad, edges),
        )
    return Stretched(held.first_step, held.last_step, *parts)
