"""How far healthy steps of this run stray: thresholds from the run's own noise.

A fault so rare that it comes once in 100,000 healthy steps cannot be seen in 2,000 of them, so what was seen is drawn
on, in two ways, and the higher value counts.

- All distances together say what kind of noise it is. Each of some Student, lognormal and Laplace shapes is weighed by
  how likely it makes them; the threshold is what they exceed, on average over these weights, once in 3e5 steps. Few
  steps leave heavy tails some weight, and the threshold is higher for it.
- The highest twentieth alone, by peaks over threshold (SPOT, Siffer et al., KDD 2017): a generalised Pareto
  distribution whose shape is held between 0 and 0.5. It knows nothing of kinds, and needs a thousand steps.

A threshold is made of what came before it, never of the fault: steps that drift and steps that spiked are left out, and
so is the step itself.

How it was chosen: in simulation, with 1,408 values (what a live window holds) and 8,192, false alarms in 1e5 steps were
0.02 and 0.04 on Gaussian noise, 0.6 and 0.3 on Student's t with 5 degrees of freedom, 1.2 with 3 (the ceiling), 0.3 on
lognormal noise of sigma 0.5; on Gaussian noise a step of +8 deviations passed it in 98.3 and 99.5 of 100. Peaks over
threshold alone, with a margin of one standard error and a floor of 6, gave 6 false alarms on t with 5 degrees at 1,408
values, and found 89 of 100.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np

from steadytrain.core.model import FloatArray, IntArray
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import Track

Z_MIN = 5.0
"""Below this no threshold is an alarm. One Gaussian step in 3.5 million exceeds it; at z > 2.5 to 3 one healthy step in
a hundred "spikes" (good for clipping)."""

Z_MAX = 40.0
"""Above this every step is an alarm: Student's t with 3 degrees of freedom gets there once in 100,000 steps."""

Z_BETWEEN, Z_BEYOND = 4.0, 6.0
"""Student's t with 3 degrees of freedom has twice as many values between these two as above the higher one."""

RATE_OF_KIND = 3e-6
RATE_OF_TAIL = 1e-5
"""Exceedances for each healthy step. The kind of noise is never quite one of ours, hence the margin."""

FREEDOMS = (50.0, 20.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.5, 2.0)
LOGNORMAL_SIGMAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8)
BIN = 0.05
LOWEST, HIGHEST = -3.0, 64.0
"""What lies below the lowest says only that it does: a batch that was far too easy is no reason to expect spikes."""

ODD_SHARE = 1e-4  # of values that are of no kind at all, so that one of them does not rule a kind out

TAIL_SHARE, TAIL_SHARE_MAX, TAIL_MIN = 0.05, 0.1, 100
"""The tail is the highest twentieth, or the highest 100 values where that is more, but never more than a tenth."""

SHAPE_MAX = 0.5
SHAPE_LIGHT_MAX = 0.02

STEPS_TO_RAISE_MIN = 256
STEPS_TO_LOWER_MIN = 1024
"""From so many healthy steps on the threshold may rise above, and fall below, the one before calibration."""

STEPS_MAX = 8192
LEVEL_STEPS = 64
REFIT_STEPS = 256
_FITS_KEPT = 16  # two signals of a live window


def thresholds(track: Track, rows: IntArray, *, before: float) -> FloatArray:
    """The threshold on z at each of ``rows``, which are ascending and hold every row above ``Z_MIN``.

    ``before`` is the threshold before calibration. A fit holds for 256 steps, counted from step 0, and uses up to the
    last 8,192 healthy steps before them.
    """
    found = np.full(len(rows), max(before, Z_MIN), np.float64)
    healthy = track.cusum <= track.alarm
    history = _raised(track.z)
    cells = track.steps[rows] // (REFIT_STEPS * track.stride)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    for start, stop in zip(starts, np.append(starts[1:], len(rows))[: len(starts)], strict=True):
        first = int(np.searchsorted(track.steps, cells[start] * REFIT_STEPS * track.stride))
        oldest = max(0, first - STEPS_MAX)
        z = history[oldest:first][healthy[oldest:first]]
        found[start:stop] = _threshold_again(z.tobytes(), before)
        healthy[rows[start:stop]] &= track.z[rows[start:stop]] <= found[start:stop]
    # While the signal drifts its distance is from a level that is no more: a shift alone must not look like spikes.
    drifting = track.cusum[rows] > track.alarm[rows]
    found[drifting] = np.maximum(found[drifting], before)
    return found


def _raised(z: FloatArray) -> FloatArray:
    """``z`` as it would be, had the signal not fallen: below their own median no 64 steps in a row lie.

    A run that fell and then stood still would else seem to have two kinds of steps, and a tail to match.
    """
    whole = len(z) - len(z) % LEVEL_STEPS
    middle = row_medians(z[:whole].reshape(-1, LEVEL_STEPS))
    raised = z.copy()
    raised[:whole] -= np.repeat(np.minimum(middle, 0.0), LEVEL_STEPS)
    return raised


@lru_cache(maxsize=_FITS_KEPT)
def _threshold_again(z: bytes, before: float) -> float:
    """:func:`_threshold`, remembered by content: the fits of a window that has grown are those from before."""
    return _threshold(np.frombuffer(z, np.float64), before)


def _threshold(z: FloatArray, before: float) -> float:
    if len(z) < STEPS_TO_RAISE_MIN:
        return before
    between, beyond = int(((z > Z_BETWEEN) & (z <= Z_BEYOND)).sum()), int((z > Z_BEYOND).sum())
    # A heavy tail thins out; far values with little in between are faults below the threshold, not a tail.
    if beyond > 2 * between:
        z = z[z <= Z_BEYOND]
    value = rare_of_its_kind(z)
    if len(z) < STEPS_TO_LOWER_MIN:
        return min(max(value, before), Z_MAX)
    return min(max(value, rare_by_its_tail(z), Z_MIN), Z_MAX)


def rare_by_its_tail(z: FloatArray) -> float:
    """The value that one in 1e5 values like ``z`` (at least 20) exceeds, going by the highest of them."""
    share = min(max(TAIL_SHARE, TAIL_MIN / len(z)), TAIL_SHARE_MAX)
    count = int(len(z) * share)
    ordered = np.sort(z)
    bound = float(ordered[-count - 1])
    excess = ordered[-count:] - bound
    mean = float(excess.mean())
    if mean <= 0.0:
        return bound
    # Probability-weighted moments (Hosking and Wallis 1987): steadier than maximum likelihood on few exceedances.
    weighted = float((excess * (1.0 - (np.arange(1, count + 1) - 0.35) / count)).mean())
    shape = min(max(2.0 - mean / max(mean - 2.0 * weighted, 1e-12), 0.0), SHAPE_MAX)
    if shape <= SHAPE_LIGHT_MAX:
        return bound + mean * float(np.log(share / RATE_OF_TAIL))
    far = float(np.power(share / RATE_OF_TAIL, shape))
    return bound + mean * (1.0 - shape) / shape * (far - 1.0)


def rare_of_its_kind(z: FloatArray) -> float:
    """The value that one in 3e5 values like ``z`` (at least one) exceeds, going by the kind of noise that they are.

    Steep falls widen the reference, and ``z`` shrinks in them. So a size below one is not made up for: that would make
    a mixture of narrow and wide, which looks like a heavy tail.
    """
    middle = median(z)
    size = max(MAD_TO_SIGMA * median(np.abs(z - middle)), 1.0)
    beyond, logarithms = _kinds()
    bins = np.clip((z - middle) / size, LOWEST - 0.5 * BIN, HIGHEST)
    counts = np.bincount(np.floor((bins - LOWEST) / BIN).astype(np.int64) + 1, minlength=logarithms.shape[1])
    likelihood = logarithms @ counts
    weight = np.exp(likelihood - likelihood.max())
    exceeded = weight @ beyond / weight.sum()
    return middle + size * (LOWEST + BIN * int(np.searchsorted(-exceeded, -RATE_OF_KIND)))


@cache
def _kinds() -> tuple[FloatArray, FloatArray]:
    """For each kind of noise the share of values beyond each edge of a bin, and the logarithm of that within each bin.

    All have a median of zero and a robust standard deviation of one. There is one bin more than edges: the values
    below.
    """
    edges: FloatArray = np.linspace(LOWEST, HIGHEST, round((HIGHEST - LOWEST) / BIN) + 1)
    kinds = [_beyond_gaussian(edges), _beyond_laplace(edges)]
    kinds += [_beyond_student(edges, freedom) for freedom in FREEDOMS]
    kinds += [_beyond_lognormal(edges, sigma) for sigma in LOGNORMAL_SIGMAS]
    beyond = np.stack(kinds)
    ends = np.ones((len(beyond), 1))
    share = -np.diff(np.concatenate([ends, beyond, 0.0 * ends], axis=1), axis=1)
    return beyond, np.log((1.0 - ODD_SHARE) * share + ODD_SHARE / share.shape[1])


def _beyond_gaussian(x: FloatArray) -> FloatArray:
    return np.array([0.5 * math.erfc(value / 2**0.5) for value in x.tolist()])


def _beyond_laplace(x: FloatArray) -> FloatArray:
    above = 0.5 * np.exp(-np.abs(x) * MAD_TO_SIGMA * math.log(2.0))
    return np.where(x > 0.0, above, 1.0 - above)


def _beyond_student(x: FloatArray, freedom: float) -> FloatArray:
    far: FloatArray = np.concatenate([[0.0], np.geomspace(1e-3, 1e5, 4000)])
    density = (1.0 + far * far / freedom) ** (-0.5 * (freedom + 1.0))
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(far))])
    beyond = 0.5 * (mass[-1] - mass) / mass[-1]
    size = MAD_TO_SIGMA * float(np.interp(-0.25, -beyond, far))
    above: FloatArray = np.interp(np.abs(x) * size, far, beyond)
    return np.where(x > 0.0, above, 1.0 - above)


def _beyond_lognormal(x: FloatArray, sigma: float) -> FloatArray:
    # The median distance of exp(sigma * Gaussian) from 1 is where its two sides hold half of all values together.
    distances: FloatArray = np.linspace(0.0, 1.0, 2001)[1:-1]
    inside = _beyond_gaussian(np.log1p(-distances) / sigma) - _beyond_gaussian(np.log1p(distances) / sigma)
    size = MAD_TO_SIGMA * float(np.interp(0.5, inside, distances))
    held: FloatArray = 1.0 + np.maximum(x * size, -1.0 + 1e-12)
    return _beyond_gaussian(np.log(held) / sigma)
