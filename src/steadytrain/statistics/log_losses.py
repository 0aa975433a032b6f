"""What a log shows of progress that is lost: to its end, or for a long stretch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray
from steadytrain.statistics.log_levels import Curve, noise_of, suffix
from steadytrain.statistics.medians import median
from steadytrain.statistics.table_episodes import stretches

DOUBLED_SHARE = 0.1
"""Of the progress, at least, is lost where a level counts as lost because it doubled."""

BEFORE_RATIO = 1.5
"""What is lost exceeds by this factor what was lost and came back earlier in the log."""

TWICE = 2.0
LEAST_SHARE = 0.25
"""Every one of the last rows keeps this share of what is lost."""

NOISE_ROWS_MIN = 8


@dataclass(frozen=True)
class Loss:
    """Progress lost from row ``first`` to row ``last`` of a curve: from ``best`` (at row ``best_row``) to ``level``."""

    first: int
    last: int
    best_row: int
    best: float
    level: float
    gain: float
    initial: float

    @property
    def share(self) -> float:
        """What is lost as a share of the progress made before; Inf where there was none."""
        return (self.level - self.best) / self.gain if self.gain > 0 else float("inf")

    @property
    def ratio(self) -> float:
        """The level over the best one, of positive values; 1 otherwise."""
        return self.level / self.best if self.best > 0 else 1.0


def lost_at_end(curve: Curve, *, floor: float, share: float, scales: float) -> Loss | None:
    """Progress that is lost at the end of the log, by more than was ever lost before and came back.

    ``floor`` is the least that counts, in units of the curve; ``share`` of the progress must be lost, or the level
    doubled; and what is lost must exceed ``scales`` noises. The stretch begins where half of that holds.
    """
    tail = curve.tail_rows
    lasting = suffix(_lost(curve, curve.level, floor=floor / 2, share=share / 2, scales=scales / 2))
    if lasting < tail:
        return None
    end = np.append(curve.level[:-1], median(curve.values[-tail:]))
    found = _of(curve, len(curve) - lasting, len(curve) - 1)
    away = curve.values[-tail:] - found.best
    lost = found.level - found.best
    if not _lost(curve, end, floor=floor, share=share, scales=scales)[-1] or away.min() < LEAST_SHARE * lost:
        return None
    return found if lost >= BEFORE_RATIO * _recovered(curve, found.best_row) else None


def lost_between(curve: Curve, *, floor: float, share: float, scales: float, rows: int) -> Loss | None:
    """The longest stretch of at least ``rows`` rows in which progress was lost, and which is over."""
    spans = stretches(_lost(curve, curve.level, floor=floor, share=share, scales=scales))
    spans = [(start, stop) for start, stop in spans if stop < len(curve) and stop - start >= rows]
    if not spans:
        return None
    start, stop = max(spans, key=lambda span: span[1] - span[0])
    return _of(curve, start, stop - 1)


def _lost(curve: Curve, level: FloatArray, *, floor: float, share: float, scales: float) -> NDArray[np.bool_]:
    """The rows at which ``level`` stands so far above the best one up to there."""
    best = np.minimum(curve.best, level)
    scales *= curve.certainty
    gain, lost = np.maximum(curve.initial - best, 0.0), level - best
    rows = slice(0, _known(curve))
    loud = lost >= scales * noise_of(curve.values[rows])
    enough = (lost >= share * gain) & (lost >= floor) & (lost > 0.0)
    if not (curve.values > 0).all():
        return enough & loud
    factor = np.log(np.maximum(level / best, 1.0))
    by_factor = factor >= scales * noise_of(np.log(curve.values[rows]))
    doubled = (factor >= 2.0 * share * np.log(TWICE)) & (lost >= DOUBLED_SHARE * gain) & by_factor
    rows_lost: NDArray[np.bool_] = (enough & (loud | by_factor)) | doubled
    return rows_lost


def _known(curve: Curve) -> int:
    """The rows that tell the noise: up to the best level, where they are enough, else all."""
    best = int(np.argmin(curve.level)) + 1
    return best if best >= NOISE_ROWS_MIN else len(curve)


def _of(curve: Curve, first: int, last: int) -> Loss:
    best_row = int(np.argmin(curve.level[: first + 1]))
    best = float(curve.level[best_row])
    level = median(curve.values[max(first, last + 1 - curve.tail_rows) : last + 1])
    return Loss(first, last, best_row, best, level, max(curve.initial - best, 0.0), curve.initial)


def _recovered(curve: Curve, best_row: int) -> float:
    """The most that was lost before the best level and came back, start-up transients left out."""
    before: FloatArray = (curve.level - curve.best)[len(curve) // 10 : best_row + 1]
    return float(before.max()) if len(before) else 0.0
