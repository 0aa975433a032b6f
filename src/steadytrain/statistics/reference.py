"""What normal is, measured over some steps: level, scale and memory of a signal, and what a drift has to outgrow.

Where the signal falls, the fall is taken out of the noise, and the level is that of the newer half of the reference. It
is never one that the signal has not had yet: a line drawn on into the present would call every fall that ends a rise.
Skewed noise has a mean above its median, which would eat up the slack of the drift statistic, so that is taken out too.

Not here: over which steps a reference is taken, and when it is held (``rolling_baseline``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadytrain.core.model import FloatArray, IntArray

REFERENCE_STEPS = 512
MAD_TO_SIGMA = 1.4826  # a Gaussian's standard deviation over its median absolute deviation
SCALE_FLOOR_RELATIVE = 1e-3
SCALE_FLOOR = 1e-6
AUTOCORRELATION_MAX = 0.95
REFERENCE_WINSOR = 4.0  # bound on z inside the autocorrelations
WHITENING_WINSOR = 8.0  # bound on z before whitening
MEMORY_LAGS = (4, 16)
LONG_MEMORY = 0.06
"""Bound on the mean autocorrelation at these lags, first to last. Its standard error over 512 values is 0.012 where
they are independent, 0.021 at a lag-1 autocorrelation of 0.3; documents read in order have 0.16, give or take 0.07."""

MILD_MEMORY = 0.02
"""Above it a long memory may only have been quiet in the reference: one stretch of documents in ten looks like this."""

SKEW = 0.15  # of a mean above the median, in scales: 4.5 standard errors of it over 512 Gaussian values
VARIANCE = 1.3  # of bounded z: three standard errors above that of a Gaussian; Student's t with 5 degrees has 1.4
FALL_MIN = 0.5  # a fall from half to half by less than this many scales is noise, not a trend

VALUE_MAX = 1e300  # keeps differences and scales finite
_REFERENCES_AT_A_TIME = 512  # 2 MiB in each of a few arrays: fast, and little for a log of a million steps


@dataclass(frozen=True)
class Drift:
    """The two constants of a one-sided CUSUM: ``slack`` is lost every step, ``alarm`` is the level that alarms."""

    slack: float
    alarm: float


SHUFFLED = Drift(slack=0.5, alarm=15.0)
"""Independent batches: no false alarm in 600,000 healthy simulated steps."""

ROUGH = Drift(slack=0.5, alarm=20.0)
"""Independent batches whose noise leans upward or has heavy tails: the sum wanders more than its slack is made for."""

DOUBTFUL = Drift(slack=0.5, alarm=40.0)
"""A memory that may be chance. In 400,000 resampled steps of a model that read its text in order ``CORRELATED`` gave
one false alarm, a doubtful memory 14 with an alarm of 30 and less than half of that with 40."""

CORRELATED = Drift(slack=1.0, alarm=40.0)
"""Batches that resemble the last ones (document order), where ``SHUFFLED`` gave 202 false alarms in 1e5 steps of a real
run. In 600,000 simulated steps an alarm of 30 gave 11, 40 gave 7, most where the reference did not show the memory."""

SHIFT_KEPT_MIN = 0.5
"""Whitening leaves this much of a shift of the level at a lag-1 autocorrelation of 0.6; more of it is a long memory."""


@dataclass(frozen=True)
class Reference:
    """Normal, measured over some steps.

    ``level`` is the median, or where the signal fell that of the newer half; ``scale`` the robust standard deviation
    about it or about the fall. ``lag_1`` is clamped to [0, 0.95]; ``memory`` is the mean
    autocorrelation at lags 4 to 16. ``skew`` is the mean above
    the median, in scales, ``variance`` that of z within the same bounds.
    """

    level: float
    scale: float
    lag_1: float
    memory: float
    skew: float
    variance: float

    @property
    def drift(self) -> Drift:
        slack, alarm = _drifts(*(np.array([n]) for n in (self.lag_1, self.memory, self.skew, self.variance)))
        return Drift(slack=float(slack[0]), alarm=float(alarm[0]))

    @property
    def centre(self) -> float:
        """The mean of whitened healthy values if it is above zero."""
        return float(max(self.skew, 0.0) * (1.0 - self.lag_1) / np.sqrt(1.0 - self.lag_1**2))

    def z(self, values: FloatArray) -> FloatArray:
        """Distance from the level in robust standard deviations."""
        return (values - self.level) / self.scale

    def whiten(self, z: FloatArray) -> FloatArray:
        """``z`` without its lag-1 autocorrelation; one element shorter, because the first has no predecessor."""
        bounded = np.clip(z, -WHITENING_WINSOR, WHITENING_WINSOR)
        whitened: FloatArray = (bounded[1:] - self.lag_1 * bounded[:-1]) / np.sqrt(1.0 - self.lag_1**2)
        return whitened


def reference_of(values: FloatArray) -> Reference:
    """The reference over all of ``values`` (finite, at least one)."""
    table = references_before(np.asarray(values, np.float64), np.array([len(values)]), width=len(values))
    return table.row(0)


@dataclass(frozen=True)
class References:
    """Many references, one a row."""

    level: FloatArray
    scale: FloatArray
    lag_1: FloatArray
    memory: FloatArray
    skew: FloatArray
    variance: FloatArray

    def row(self, index: int) -> Reference:
        return Reference(
            level=float(self.level[index]),
            scale=float(self.scale[index]),
            lag_1=float(self.lag_1[index]),
            memory=float(self.memory[index]),
            skew=float(self.skew[index]),
            variance=float(self.variance[index]),
        )

    @cached_property
    def drifts(self) -> tuple[FloatArray, FloatArray]:
        """Slack and alarm level of each."""
        return _drifts(self.lag_1, self.memory, self.skew, self.variance)

    @property
    def centre(self) -> FloatArray:
        centre: FloatArray = np.maximum(self.skew, 0.0) * (1.0 - self.lag_1) / np.sqrt(1.0 - self.lag_1**2)
        return centre


def _drifts(
    lag_1: FloatArray, memory: FloatArray, skew: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slack and alarm level of the CUSUM for each reference.

    Whitening shrinks a shift of the level, and the slack, made for a shift by one deviation, shrinks with it. The alarm
    grows by as much: the rate of false alarms hangs on the product of both.
    """
    kept = np.maximum((1.0 - lag_1) / np.sqrt(1.0 - lag_1**2), SHIFT_KEPT_MIN)
    alarm = np.where((skew > SKEW) | (variance > VARIANCE), ROUGH.alarm, SHUFFLED.alarm)
    alarm = np.where(memory > MILD_MEMORY, DOUBTFUL.alarm, alarm)
    long = memory > LONG_MEMORY
    return np.where(long, CORRELATED.slack, SHUFFLED.slack * kept), np.where(long, CORRELATED.alarm, alarm / kept)


FIELDS = tuple(field.name for field in fields(References))


def references_before(values: FloatArray, stops: IntArray, *, width: int = REFERENCE_STEPS) -> References:
    """For each stop the reference over the ``width`` values before it, or over as many as there are (at least one)."""
    padded = np.concatenate([np.full(width, np.inf), np.clip(values, -VALUE_MAX, VALUE_MAX)])
    views = sliding_window_view(padded, width)
    found = np.empty((6, len(stops)))
    for start in range(0, len(stops), _REFERENCES_AT_A_TIME):
        some = stops[start : start + _REFERENCES_AT_A_TIME]
        found[:, start : start + len(some)] = _measure(views[some], np.minimum(some, width))
    return References(*found)


def _measure(away: FloatArray, counts: IntArray) -> FloatArray:
    """The six numbers of a reference for each row of ``away``, which is written over.

    The first values of a row are padding, Inf; the last ``counts`` are measured.
    """
    width = away.shape[1]
    column = np.arange(width)
    older = counts - counts // 2
    median = _medians(away, counts)
    if (counts == width).all():
        early, late = away[:, : older[0]], away[:, older[0] :]
    else:
        newer = column >= (width - counts // 2)[:, None]
        early, late = np.where(newer, np.inf, away), np.where(newer, away, np.inf)
    fall = _medians(early, older) - _medians(late, np.maximum(counts // 2, 1)) if width > 1 else np.zeros(len(away))
    away -= median[:, None]
    scale = _spread(away, counts, median)
    falling = np.flatnonzero((fall > FALL_MIN * scale) & (counts > 1))
    level = median.copy()
    if len(falling):
        # The line through the middles of both halves, zero in the middle of the values.
        slope = fall[falling] / (0.5 * counts[falling])
        middle = width - 0.5 * (counts[falling] + 1)
        away[falling] += slope[:, None] * (column - middle[:, None])
        scale[falling] = _spread(away[falling], counts[falling], median[falling])
        level[falling] -= 0.5 * np.maximum(fall[falling] - FALL_MIN * scale[falling], 0.0)
    away /= scale[:, None]
    z = np.clip(away, -REFERENCE_WINSOR, REFERENCE_WINSOR, out=away)
    # The padding is set to the mean, so that it adds nothing to the sums.
    real = column >= (width - counts)[:, None]
    z *= real
    skew = z.sum(axis=1) / counts
    z -= skew[:, None]
    z *= real
    power = np.einsum("ij,ij->i", z, z)
    variance = power / counts
    power[power == 0.0] = 1.0
    lag_1 = np.einsum("ij,ij->i", z[:, 1:], z[:, :-1]) / power
    memory = _lagged(z) / power
    return np.stack([level, scale, np.clip(lag_1, 0.0, AUTOCORRELATION_MAX), memory, skew, variance])


def _lagged(z: FloatArray) -> FloatArray:
    """The mean, over the lags of the long memory, of the sum of products of each row with itself so much later."""
    near, far = MEMORY_LAGS
    if z.shape[1] <= near:
        return np.zeros(len(z))
    # Sums of the values `far` to `near` steps before each one, as differences of running sums.
    running = np.cumsum(z, axis=1)
    sums = running[:, :-near].copy()
    sums[:, far - near + 1 :] -= running[:, : -far - 1]
    lagged: FloatArray = np.einsum("ij,ij->i", z[:, near:], sums) / (far - near + 1)
    return lagged


def _spread(away: FloatArray, counts: IntArray, median: FloatArray) -> FloatArray:
    """Robust standard deviation of each row of distances, never quite zero."""
    spread = MAD_TO_SIGMA * _medians(np.abs(away), counts)
    return np.maximum(spread, np.maximum(SCALE_FLOOR_RELATIVE * np.abs(median), SCALE_FLOOR))


def _medians(rows: FloatArray, counts: IntArray) -> FloatArray:
    """Medians of the smallest ``counts`` values of each row; the others are Inf.

    Sorting is faster here than a partition at two places, which NumPy does not vectorise.
    """
    ordered = np.sort(rows, axis=1)
    row = np.arange(len(rows))
    medians: FloatArray = 0.5 * (ordered[row, (counts - 1) // 2] + ordered[row, counts // 2])
    return medians
