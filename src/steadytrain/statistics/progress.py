"""How much of what training had gained is lost: the level of a loss row by row, the best before, and each rise from it.

A level is the median of a few values. Progress is the distance from the level at the start to the best one so far.
Not here: how large a rise alarms, and for how long it has to last (``detectors.lost_progress``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, IntArray
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.reference import MAD_TO_SIGMA, references_before

LEVEL_ROWS = 5
"""A level is the median of so many values: one or two odd batches do not set it."""

REFERENCE_ROWS = 16
"""The best level is that of so many values, or of as many as there are from ``LEVEL_ROWS`` on."""

NOISE_ROWS = 64
MEMORY_ROWS = 10
"""Values that resemble the last ones (documents in order) wander; changes over so many rows show how far."""

SLACK_SCALES = 1.0
"""The lowest of many medians lies below the level by chance, by up to about one scale."""

BACK_SHARE = 0.1
SINGLE_SCALES = 2.0
FIRST_ODD = 1.5

_SERIES_KEPT = 3


@dataclass(frozen=True)
class Levels:
    """The loss row by row: its level now, the best level before, the scale there and the row after it."""

    values: FloatArray
    now: FloatArray
    best: FloatArray
    scale: FloatArray
    best_stop: IntArray
    start: float
    over: dict[int, tuple[Rise, FloatArray]] = field(default_factory=dict, repr=False, compare=False)
    """The rises that came back, with their evidence, by the row that they were asked for."""


@dataclass(frozen=True)
class Rise:
    """Rows ``onset`` to ``stop`` (exclusive), in which the loss stands above its best level."""

    onset: int
    stop: int
    best: float
    best_stop: int
    noise: float
    progress: float


@dataclass(frozen=True, eq=False)
class _Known:
    """What was worked out of a series: ``now``, the references before each row, and the rises that came back.

    All of it depends on earlier rows only. So it is taken over for a series that begins with the very same values, and
    :func:`levels_of` is still a function of its argument.
    """

    values: FloatArray
    now: FloatArray
    level: FloatArray
    scale: FloatArray
    over: dict[int, tuple[Rise, FloatArray]]


_KNOWN: deque[_Known] = deque(maxlen=_SERIES_KEPT)


def _known_of(values: FloatArray) -> _Known:
    """What is known of ``values`` row by row, worked out only for the rows that came on since the last look."""
    unit = median(np.abs(values[:LEVEL_ROWS])) or 1.0  # a reference has a least scale, made for nats
    for known in reversed(_KNOWN):
        count = len(known.values)
        if count <= len(values) and np.array_equal(known.values, values[:count]):
            if count == len(values):
                return known
            _KNOWN.remove(known)
            break
    else:
        none = np.zeros(0, np.float64)
        known, count = _Known(none, none, none, none, {}), LEVEL_ROWS
    first = max(0, count - REFERENCE_ROWS)
    stops = np.arange(count, len(values)) - first
    references = references_before(values[first:] / unit, stops, width=REFERENCE_ROWS)
    done = len(known.now)
    padded = np.concatenate([np.full(LEVEL_ROWS - 1, values[0]), values])[done:]
    found = _Known(
        values.copy(),
        np.concatenate([known.now, row_medians(sliding_window_view(padded, LEVEL_ROWS)[: len(values) - done])]),
        np.concatenate([known.level, unit * references.level]),
        np.concatenate([known.scale, unit * references.scale]),
        known.over,
    )
    _KNOWN.append(found)
    return found


def levels_of(values: FloatArray) -> Levels:
    known, stops = _known_of(values), np.arange(LEVEL_ROWS, len(values))
    now = known.now
    # A spike among the values of a reference looks like a fall; no level is lower than one that was there.
    reached = np.maximum(known.level, np.minimum.accumulate(now)[LEVEL_ROWS - 1 : -1])
    best = np.minimum.accumulate(reached)
    at = np.maximum.accumulate(np.where(reached == best, np.arange(len(stops)), 0))
    scale = known.scale[at]
    first, typical = float(values[0]), median(values[:LEVEL_ROWS])
    unknown = np.full(LEVEL_ROWS, np.inf)
    return Levels(
        values=values,
        now=now,
        best=np.concatenate([unknown, best]),
        scale=np.concatenate([unknown, scale]),
        best_stop=np.concatenate([np.zeros(LEVEL_ROWS, np.int64), stops[at]]),
        start=first if typical > FIRST_ODD * first > 0 else typical,
        over=known.over,
    )


def rise_at(levels: Levels, row: int) -> tuple[Rise, FloatArray]:
    """The rise that ``row`` belongs to, and the evidence at each of its rows."""
    known = levels.over.get(row)
    if known is None:
        rise = _rise_at(levels, row)
        known = rise, _evidence(levels, rise)
        if rise.stop < len(levels.values):
            levels.over[row] = known
    return known


def _rise_at(levels: Levels, row: int) -> Rise:
    best, noise, values = float(levels.best[row]), noise_before(levels, row), levels.values
    before = np.flatnonzero(values[max(1, row - NOISE_ROWS) : row] <= best + SINGLE_SCALES * noise)
    onset = max(1, row - NOISE_ROWS) + (int(before[-1]) + 1 if len(before) else 0)
    progress = levels.start - best
    back = np.flatnonzero(levels.now[row + 1 :] < best + max(BACK_SHARE * progress, noise))
    stop = row + 1 + int(back[0]) if len(back) else len(values)
    return Rise(onset, stop, best, int(levels.best_stop[row]), noise, progress)


def noise_before(levels: Levels, row: int) -> float:
    """The scale of one loss before a rise, by the changes to the next value and to one that is some rows later."""
    stop = int(levels.best_stop[row])
    before = levels.values[max(0, stop - NOISE_ROWS) : max(stop, row - LEVEL_ROWS // 2)]
    changes = MAD_TO_SIGMA / 2**0.5 * median(np.abs(np.diff(before)))
    if stop < REFERENCE_ROWS:
        changes = max(changes, float(np.abs(np.diff(levels.values[:stop])).max()) / 2**0.5)
    if len(before) >= 4 * MEMORY_ROWS:
        later = before[MEMORY_ROWS:] - before[:-MEMORY_ROWS]
        changes = max(changes, MAD_TO_SIGMA / 2**0.5 * median(np.abs(later - median(later))))
    return max(min(float(levels.scale[row]), 1.3 * changes), changes, float(np.finfo(np.float64).tiny))


def _evidence(levels: Levels, rise: Rise) -> FloatArray:
    """The logarithm of the e-CUSUM at each row of a rise, on the scale that is surprised less."""
    values = levels.values[rise.onset : rise.stop]
    with np.errstate(over="ignore"):  # after losses that were equal to the last bit there is no noise
        z = (values - rise.best) / rise.noise
    reference = levels.values[max(0, rise.best_stop - REFERENCE_ROWS) : rise.best_stop]
    if rise.best > 0 and reference.min() > 0 and values.min() > 0:
        logs = np.log(reference)
        scale = MAD_TO_SIGMA * median(np.abs(logs - median(logs)))
        z = np.minimum(z, np.log(values / rise.best) / max(scale, 0.5 * rise.noise / rise.best))
    sums = np.concatenate([[0.0], np.cumsum(_log_e(z - SLACK_SCALES))])
    return (sums - np.minimum.accumulate(sums))[1:]


def _log_e(z: FloatArray) -> FloatArray:
    """The logarithm of the e-value of each distance: calibrator 0.5 / sqrt(p), p of Student's t with 4 degrees."""
    z = np.clip(z, -1e6, 1e6)
    wide = 1.0 + z**2 / 4.0
    p: NDArray[np.float64] = 0.5 - 0.375 * z / np.sqrt(wide) * (1.0 - z**2 / (12.0 * wide))
    found: FloatArray = np.log(0.5) - 0.5 * np.log(np.clip(p, 1e-6, 1.0))
    return found
