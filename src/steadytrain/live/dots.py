"""Curves in braille, two by four dots a character: a line, and the smallest and largest value of each column of dots.

A column with a value that is not finite has a cross on top, so that one NaN among a million steps is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, IntArray
from steadytrain.live.stretches import Stretched, resampled

DOTS_WIDE, DOTS_HIGH = 2, 4
BAD, BAD_ASCII = "✗", "x"
LOG_RATIO_MIN = 50.0
"""Values that span more than this are drawn on a logarithmic scale: otherwise one spike flattens all else."""

_BLANK = 0x2800
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


@dataclass(frozen=True)
class Drawn:
    """Lines of equal length, top first. ``smallest`` and ``largest`` are the ends of the scale, None without values."""

    lines: tuple[str, ...]
    smallest: float | None
    largest: float | None
    logarithmic: bool
    bad: int


def draw(held: Stretched, width: int, height: int, *, ascii_only: bool = False) -> Drawn:
    """``held`` in ``width`` by ``height`` characters."""
    shown = resampled(held, width * DOTS_WIDE)
    known = ~np.isnan(shown.smallest)
    low = high = None
    logarithmic = False
    cells = np.zeros((height, width), np.int64)
    if known.any():
        low, high = float(np.nanmin(shown.smallest)), float(np.nanmax(shown.largest))
        logarithmic = low > 0 and high / low >= LOG_RATIO_MIN
        scale = Scale(low, high, height * DOTS_HIGH, logarithmic)
        cells = _cells(shown, scale, known, height, width)
    lines = [[_character(int(bits), ascii_only) for bits in row] for row in cells]
    for column in np.flatnonzero((shown.bad > 0).reshape(width, DOTS_WIDE).any(axis=1)).tolist():
        lines[0][column] = BAD_ASCII if ascii_only else BAD
    return Drawn(tuple("".join(line) for line in lines), low, high, logarithmic, int(held.bad.sum()))


@dataclass(frozen=True)
class Scale:
    """The ends of a scale, and its rows of dots."""

    low: float
    high: float
    rows: int
    logarithmic: bool

    def places(self, values: FloatArray) -> IntArray:
        """The row of dots of each value, 0 at the bottom."""
        with np.errstate(all="ignore"):
            heights = np.log(values) if self.logarithmic else values
            low, high = (np.log(self.low), np.log(self.high)) if self.logarithmic else (self.low, self.high)
            share = (heights - low) / (high - low) if high > low else np.full(len(values), 0.5)
        return np.asarray(np.clip(np.nan_to_num(share) * self.rows, 0, self.rows - 1), np.int64)


def _cells(shown: Stretched, scale: Scale, known: NDArray[np.bool_], height: int, width: int) -> IntArray:
    """The samples as a line, and the smallest and largest value of each column as a dot: a filled band between them
    would hide the course of a noisy curve.
    """
    line, low, high = (scale.places(values) for values in (shown.sample, shown.smallest, shown.largest))
    before = np.concatenate([line[:1], line[:-1]])
    joined = known & np.concatenate([known[:1], known[:-1]])
    # Each column reaches to the one before it, so that the line has no gaps.
    bottom = np.where(joined & (before < line), before + 1, line)
    top = np.where(joined & (before > line), before - 1, line)
    rows = np.arange(height * DOTS_HIGH)[::-1, None]  # from the top
    dots = ((rows >= bottom) & (rows <= top)) | (rows == low) | (rows == high)
    grid = (dots & known).reshape(height, DOTS_HIGH, width, DOTS_WIDE)
    return np.asarray(np.einsum("hrwc,rc->hw", grid.astype(np.int64), _BITS), np.int64)


def _character(bits: int, ascii_only: bool) -> str:
    if ascii_only:
        return "*" if bits else " "
    return chr(_BLANK + bits) if bits else " "
