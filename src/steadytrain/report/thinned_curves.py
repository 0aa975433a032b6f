"""Curves of a report: series thinned to a bounded number of points without losing events.

From each stretch of steps, thinning keeps the smallest and the largest finite value and the first non-finite one. So a
spike or a NaN of one step survives any zoom. Means never appear here: they would hide both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Series

POINTS_MAX = 3000
SPARK_CELLS = 34
_KEPT_PER_STRETCH = 5
LOGARITHMIC_RATIO = 100.0
"""Ratio of extremes from which on a few steps around an incident get a logarithmic axis. A loss falls by less."""

_BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE = "✗"


@dataclass(frozen=True)
class Curve:
    """One signal to draw.

    ``steps`` and ``values`` are thinned and may hold NaN and Inf as measured. ``smallest`` and ``largest`` cover all
    finite values (None if there are none), ``not_finite`` counts the others, ``count`` counts all. ``spark`` is the
    curve in one line of block characters, with ``✗`` for a stretch that has a non-finite value.
    """

    name: str
    title: str
    logarithmic: bool
    steps: tuple[int, ...]
    values: tuple[float, ...]
    smallest: float | None
    largest: float | None
    not_finite: int
    count: int
    spark: str
    stream: str = ""
    """The optimizer whose steps it shows, as a reader knows it; "" if the run has one alone."""


def curve(
    name: str, title: str, series: Series, *, scale: str = "linear", points_max: int = POINTS_MAX, stream: str = ""
) -> Curve | None:
    """The curve of ``series``, None if it has no step. ``scale`` is ``linear`` or ``log``."""
    if not len(series):
        return None
    finite = series.values[np.isfinite(series.values)]
    # A logarithmic axis cannot show zero, so a curve of zeros gets a linear one.
    logarithmic = scale == "log" and bool(np.any(finite > 0)) and not np.any(finite < 0)
    kept = thin(series.values, points_max=points_max)
    return Curve(
        name=name,
        title=f"{title} of {stream}" if stream else title,
        logarithmic=logarithmic,
        steps=tuple(series.steps[kept].tolist()),
        values=tuple(series.values[kept].tolist()),
        smallest=float(finite.min()) if len(finite) else None,
        largest=float(finite.max()) if len(finite) else None,
        not_finite=len(series) - len(finite),
        count=len(series),
        spark=spark(series.values, logarithmic=logarithmic),
        stream=stream,
    )


def spans_decades(values: FloatArray) -> bool:
    """Whether a linear axis would flatten all but the largest values."""
    finite = values[np.isfinite(values)]
    return bool(len(finite) and finite.min() > 0.0 and finite.max() > LOGARITHMIC_RATIO * finite.min())


def thin(values: FloatArray, *, points_max: int = POINTS_MAX) -> IntArray:
    """Positions to keep, ascending, at most ``points_max``: first, last, and the extremes and non-finite values of each
    stretch.
    """
    if len(values) <= points_max:
        return np.arange(len(values))
    kept: set[int] = set()
    for start, stop in _stretches(len(values), points_max // _KEPT_PER_STRETCH):
        part = values[start:stop]
        kept |= {start, stop - 1}
        finite = np.isfinite(part)
        if finite.any():
            kept |= {
                start + int(np.argmin(np.where(finite, part, np.inf))),
                start + int(np.argmax(np.where(finite, part, -np.inf))),
            }
        if not finite.all():
            kept.add(start + int(np.argmin(finite)))
    return np.array(sorted(kept), np.int64)


def spark(values: FloatArray, *, cells: int = SPARK_CELLS, logarithmic: bool = False) -> str:
    """``values`` as at most ``cells`` block characters. Each shows the largest value of its stretch."""
    peaks: list[float] = []
    for start, stop in _stretches(len(values), min(cells, len(values))):
        part = values[start:stop]
        peaks.append(float(part.max()) if np.isfinite(part).all() else math.nan)
    heights = [_height(peak, logarithmic=logarithmic) for peak in peaks]
    known = [height for height in heights if height is not None]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    return "".join(_block(peak, height, low, span) for peak, height in zip(peaks, heights, strict=True))


def _height(peak: float, *, logarithmic: bool) -> float | None:
    if not math.isfinite(peak) or (logarithmic and peak <= 0):
        return None
    return math.log(peak) if logarithmic else peak


def _block(peak: float, height: float | None, low: float, span: float) -> str:
    if not math.isfinite(peak):
        return NOT_FINITE
    if height is None or span <= 0:
        return _BLOCKS[0]
    return _BLOCKS[min(len(_BLOCKS) - 1, int((height - low) / span * len(_BLOCKS)))]


def _stretches(length: int, count: int) -> Sequence[tuple[int, int]]:
    """``count`` neighbouring, non-empty ranges that cover ``length`` (which is at least ``count``)."""
    edges = [length * index // count for index in range(count + 1)] if count else [0]
    return list(itertools.pairwise(edges))
