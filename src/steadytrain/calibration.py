"""How far healthy steps of this run stray: thresholds from the run's own tail, by peaks over threshold.

A fault so rare that it comes once in 100,000 healthy steps cannot be seen in 2,000 of them, so the tail is drawn on: a
generalised Pareto distribution is fitted to the highest twentieth of the healthy distances (SPOT, Siffer et al., KDD
2017), with its shape held between 0 and 0.5. A threshold is made of what came before it, never of the fault: steps that
drift and steps that spiked are left out, and so is the step itself.

How it was chosen: in simulation, with 1,408 values (what a live window holds) and 4,096, false alarms in 1e5 steps were
0 and 0 on Gaussian noise, 2.3 and 0.7 on Student's t with 5 degrees of freedom, 3 and 0.3 with 3, 0.6 and 0.4 on
lognormal noise of sigma 0.5; the threshold for Gaussian noise was the floor of 6 in 91 and 99 of 100 fits.
"""

from __future__ import annotations

import numpy as np

from steadytrain.model import FloatArray, IntArray
from steadytrain.reference import Track

Z_MIN = 6.0
"""Below this no threshold is an alarm: at z > 2.5 to 3 one healthy step in a hundred "spikes" (good for clipping)."""

Z_MAX = 40.0
"""Above this every step is an alarm: Student's t with 3 degrees of freedom gets there once in 100,000 steps."""

Z_BETWEEN = 4.0  # of Student's t with 3 degrees of freedom twice as many values lie between 4 and 6 as above 6

BEYOND_MIN = 3
"""So many values above ``Z_BETWEEN`` are a tail; of 1,024 Gaussian ones 0.03 are. Fewer do not raise a threshold."""

TAIL_SHARE, TAIL_SHARE_MAX, TAIL_MIN = 0.05, 0.1, 100
"""The tail is the highest twentieth, or the highest 100 values where that is more, but never more than a tenth."""

SHAPE_MAX = 0.5
RATE_LIGHT = 1e-5  # exceedances for each healthy step where the tail is no heavier than exponential
RATE_HEAVY = 1e-6  # where it is heavier: the shape is then underestimated as often as not
SHAPE_LIGHT_MAX = 0.02

STEPS_TO_RAISE_MIN = 256
STEPS_TO_LOWER_MIN = 1024
"""From so many healthy steps on the threshold may rise above, and fall below, the one before calibration."""

STEPS_CERTAIN_MIN = 4096
"""Where the tail is heavy, it must have been seen for so long before the threshold falls."""

STEPS_MAX = 8192
LEVEL_STEPS = 64
REFIT_STEPS = 256


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
        found[start:stop] = _threshold(z, before)
        healthy[rows[start:stop]] &= track.z[rows[start:stop]] <= found[start:stop]
    return found


def _raised(z: FloatArray) -> FloatArray:
    """``z`` as it would be, had the signal not fallen: below their own median no 64 steps in a row lie.

    A run that fell and then stood still would else seem to have two kinds of steps, and a tail to match.
    """
    whole = len(z) - len(z) % LEVEL_STEPS
    middle = np.median(z[:whole].reshape(-1, LEVEL_STEPS), axis=1)
    raised = z.copy()
    raised[:whole] -= np.repeat(np.minimum(middle, 0.0), LEVEL_STEPS)
    return raised


def _threshold(z: FloatArray, before: float) -> float:
    if len(z) < STEPS_TO_RAISE_MIN:
        return before
    between, beyond = int(((z > Z_BETWEEN) & (z <= Z_MIN)).sum()), int((z > Z_MIN).sum())
    if len(z) < STEPS_TO_LOWER_MIN and between + beyond < BEYOND_MIN:
        return before
    # A heavy tail thins out; what stands far out with little in between is no tail but faults below the threshold.
    if beyond > 2 * between:
        z = z[z <= Z_MIN]
    value, light = rare(z)
    certain = len(z) >= STEPS_CERTAIN_MIN or (light and len(z) >= STEPS_TO_LOWER_MIN)
    return min(max(Z_MIN if certain else before, value), Z_MAX)


def rare(z: FloatArray) -> tuple[float, bool]:
    """The value that one in 1e5 to 1e6 values like ``z`` (at least 20) exceeds; whether their tail is light."""
    share = min(max(TAIL_SHARE, TAIL_MIN / len(z)), TAIL_SHARE_MAX)
    count = int(len(z) * share)
    ordered = np.sort(z)
    bound = float(ordered[-count - 1])
    excess = ordered[-count:] - bound
    mean = float(excess.mean())
    if mean <= 0.0:
        return bound, True
    # Probability-weighted moments (Hosking and Wallis 1987): steadier than maximum likelihood on few exceedances.
    weighted = float((excess * (1.0 - (np.arange(1, count + 1) - 0.35) / count)).mean())
    shape = min(max(2.0 - mean / max(mean - 2.0 * weighted, 1e-12), 0.0), SHAPE_MAX)
    if shape <= SHAPE_LIGHT_MAX:
        return bound + mean * float(np.log(share / RATE_LIGHT)), True
    size = mean * (1.0 - shape)
    safe = min(shape + min(shape, 1.0 / count**0.5), SHAPE_MAX)  # about one standard error
    far = float(np.power(share / RATE_HEAVY, safe))
    return bound + size / safe * (far - 1.0), False
