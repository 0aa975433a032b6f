"""The log2 histogram of one tensor over the steps: a map of powers of two x readings.

For each power of two the table has the share of the elements, and the shares that are zero, below, above or not finite.
If a drawn column covers several readings, it shows one of them: the one with the most non-finite elements, else the
last. The shares of a column add up to one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Table
from steadytrain.report.wording import clean, count

COLUMNS_MAX = 28
SHARE_MIN = 1e-4
"""The colour scale is logarithmic from this share to 1, so that the tails of a distribution are visible."""

EMPTY, LOWEST, HIGHEST, NOT_FINITE = 0, 1, 8, 9
"""Levels of a cell: no element, the two ends of the colour scale, and some non-finite.

Eight colours resolve half decades, and compress to half the size of fourteen.
"""


@dataclass(frozen=True)
class Histogram:
    """``levels`` has shape ``(bins, readings)``, with the largest magnitude on top. ``bins`` names its rows."""

    title: str
    bins: tuple[str, ...]
    levels: NDArray[np.uint8]
    caption: str


def histogram(title: str, table: Table, row: int) -> Histogram | None:
    """The histogram of a row of the table ``histograms``, None if it was never measured."""
    shares = table.values[:, row, :]
    here = np.flatnonzero(np.any(~np.isnan(shares), axis=1))
    if not len(here):
        return None
    shares, steps = shares[here], table.steps[here]
    kept = _kept(shares, table.columns)
    bins = _used(shares[kept], table.columns)
    first, last = count(int(steps[0])), count(int(steps[-1]))
    return Histogram(
        title=title,
        bins=tuple(clean(table.columns[index]) for index in reversed(bins)),
        levels=_levels(shares[np.ix_(kept, bins)], [table.columns[index] for index in bins]).T[::-1],
        caption=f"step {first}" if len(here) == 1 else f"{count(len(here))} readings, steps {first} to {last}",
    )


def _kept(shares: NDArray[np.float32], columns: tuple[str, ...]) -> list[int]:
    """Positions of the readings that are drawn."""
    if len(shares) <= COLUMNS_MAX:
        return list(range(len(shares)))
    bad = np.nan_to_num(shares[:, columns.index("nonfinite")]) if "nonfinite" in columns else np.zeros(len(shares))
    edges = [len(shares) * index // COLUMNS_MAX for index in range(COLUMNS_MAX + 1)]
    return [stop - 1 - int(bad[start:stop][::-1].argmax()) for start, stop in itertools.pairwise(edges)]


def _used(shares: NDArray[np.float32], columns: tuple[str, ...]) -> list[int]:
    """The bins that are drawn: all powers between the first and the last non-empty one, and other bins if not empty."""
    held = np.flatnonzero((np.nan_to_num(shares) > 0).any(axis=0))
    powers = [index for index in held.tolist() if columns[index].startswith("2^")]
    between = range(powers[0], powers[-1] + 1) if powers else range(0)
    return [index for index in range(len(columns)) if index in between or index in held]


def _levels(shares: NDArray[np.float32], bins: list[str]) -> NDArray[np.uint8]:
    with np.errstate(divide="ignore", invalid="ignore"):
        place = 1 - np.log(shares) / math.log(SHARE_MIN)
    found = np.rint(LOWEST + np.clip(np.nan_to_num(place), 0, 1) * (HIGHEST - LOWEST)).astype(np.uint8)
    found[~(shares > 0)] = EMPTY
    if "nonfinite" in bins:
        column = bins.index("nonfinite")
        found[:, column] = np.where(shares[:, column] > 0, NOT_FINITE, EMPTY)
    return found
