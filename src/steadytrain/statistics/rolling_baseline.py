"""What "normal" was a while ago, and how far a signal has moved from it since.

Every statistical detector stands on the same lagged reference: the median and the median absolute deviation of the
512 steps that ended 64 steps ago. It lags, so that a slow divergence does not drag its own yardstick along, and it
freezes while the drift statistic is raised, so that a fault cannot become the new normal before it is reported. A
rolling mean and standard deviation do neither: in simulation they found exponential growth about as often as chance.

Where the signal falls, the fall is taken out of the noise, and the level is that of the newer half of the reference. It
is never one that the signal has not had yet: a line drawn on into the present would call every fall that ends a rise.
Skewed noise has a mean above its median, which would eat up the slack of the drift statistic, so that is taken out too.

The whole path is a function of the window and has no memory. So that two windows that overlap agree on what they
both saw, a live one that slides along and a whole log, everything that happens "every so often" happens at absolute
step numbers, nothing is held for longer than 1000 steps, and a window that has slid along is judged only where its
reference is full.

Not here: the thresholds that make an alarm (the detectors), and their calibration to a run (``calibration``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadytrain.core.model import FloatArray, IntArray, Series

REFERENCE_STEPS = 512
REFERENCE_STEPS_MIN = 128
GAP_STEPS = 64
REFRESH_STEPS = 16
FREEZE_STEPS_MAX = 1000
RELEASE_STEPS = 512
"""A frozen reference is let go at a multiple of this step number: the last one within ``FREEZE_STEPS_MAX``.

Windows that begin at different places inside one long fault then agree on everything after the next multiple.
"""

TRACK_STEPS_MAX = 2048
"""The newest steps that a live window holds. A fault is held for at most 1000 steps and the reference needs 576 before
it; the rest lets the statistic forget where the window happened to begin."""

SLID_STEPS_MIN = 1536
"""A window this long that lacks the run's start has slid along; a shorter one is a run that was resumed."""

MAD_TO_SIGMA = 1.4826  # a Gaussian's standard deviation over its median absolute deviation
SCALE_FLOOR_RELATIVE = 1e-3
SCALE_FLOOR = 1e-6
AUTOCORRELATION_MAX = 0.95
REFERENCE_WINSOR = 4.0  # bound on z inside the autocorrelations
WHITENING_WINSOR = 8.0  # bound on z before whitening
INCREMENT_WINSOR = 4.0  # bound on what one step may add to the CUSUM
CUSUM_CAP = 2.0  # in alarm levels: an alarm ends within some tens of steps of the recovery, not after hundreds

MEMORY_LAGS = (4, 16)
LONG_MEMORY = 0.06
"""Bound on the mean autocorrelation at these lags, first to last. Its standard error over 512 values is 0.012 where
they are independent, 0.021 at a lag-1 autocorrelation of 0.3; documents read in order have 0.16, give or take 0.07."""

MILD_MEMORY = 0.02
"""Above it a long memory may only have been quiet in the reference: one stretch of documents in ten looks like this."""

SKEW = 0.15  # of a mean above the median, in scales: 4.5 standard errors of it over 512 Gaussian values
VARIANCE = 1.3  # of bounded z: three standard errors above that of a Gaussian; Student's t with 5 degrees has 1.4
FALL_MIN = 0.5  # a fall from half to half by less than this many scales is noise, not a trend

_VALUE_MAX = 1e300  # keeps differences and scales finite
_TRACKS_KEPT = 3  # the detectors of a stream ask for the same tracks one after the other
_REFERENCES_AT_A_TIME = 512  # 2 MiB in each of a few arrays: fast, and little for a log of a million steps
_HELD_BLOCKS_AT_A_TIME = 64  # about as long as a reference may be held


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
        """The mean of whitened healthy values where it lies above zero."""
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
    table = _references(np.asarray(values, np.float64), np.array([len(values)]), width=len(values))
    return table.row(0)


@dataclass(frozen=True)
class Track:
    """A signal against its lagged reference, step by step; empty where no reference could exist yet.

    ``z`` is the distance from the reference in robust standard deviations, ``cusum`` the one-sided CUSUM of the
    whitened ``z``, ``alarm`` its level for an alarm, ``onset`` the row where the CUSUM last left zero (the row itself
    where it is zero). ``level`` and ``scale`` are those of the reference in force at the step. ``first_seen`` is the
    first step of the series, ``begin`` the position in it of row 0, ``stride`` the optimizer steps between two of it.
    """

    steps: IntArray
    values: FloatArray
    z: FloatArray
    cusum: FloatArray
    alarm: FloatArray
    onset: IntArray
    level: FloatArray
    scale: FloatArray
    first_seen: int
    begin: int
    stride: int

    def __len__(self) -> int:
        return len(self.steps)


def follow(series: Series) -> Track:
    """Follow a series that holds only what may enter a reference.

    Pass ``window.applied(signal)``: finite values of applied steps, oldest first. A value that is not finite is left
    out here as well. The same series again within a few calls costs next to nothing.
    """
    steps, values = series.steps, series.values
    finite = np.isfinite(values)
    if not finite.all():
        steps, values = steps[finite], values[finite]
    # Remembered by content, so this is still a function of its argument.
    return _follow(np.asarray(steps, np.int64).tobytes(), np.asarray(values, np.float64).tobytes())


def stride_of(steps: IntArray) -> int:
    """How many optimizer steps lie between two logged ones: 1 in a live run, often 10 or 50 in a log."""
    return max(1, int(np.median(np.diff(steps)))) if len(steps) > 1 else 1


def holds_start(steps: IntArray, *, stride: int) -> bool:
    """Whether ``steps`` begins where the run began."""
    return len(steps) > 0 and int(steps[0]) <= stride


def known_first_step(steps: IntArray, row: int, *, first_seen: int, stride: int, last_row: int | None = None) -> int:
    """The step at which an episode that begins at ``row`` of ``steps`` is known to have been there.

    An episode that fills all that is in view (from ``first_seen`` on) began at an unknown step, and the edge of a
    sliding window would give it a new name at every look. It is then named by the first step in view after a round
    number, which stays, if it lasted until then (``last_row``). An episode in view of the run's start keeps its own
    first step.
    """
    if row > 0 or first_seen <= stride:
        return int(steps[row])
    # A power of two of about half the steps in view; the quarter keeps it from flipping when one step is missing.
    grid = stride << max(0, (len(steps) + len(steps) // 4).bit_length() - 2)
    later = np.flatnonzero(steps // grid > steps[0] // grid)
    reached = len(later) and (last_row is None or later[0] <= last_row)
    return int(steps[later[0]]) if reached else int(steps[row])


def has_slid(steps: IntArray, *, stride: int) -> bool:
    """Whether ``steps`` are so many that the run's start, which they lack, has slid out of view."""
    return len(steps) >= SLID_STEPS_MIN and not holds_start(steps, stride=stride)


# References, many at once.


@dataclass(frozen=True)
class _References:
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


_FIELDS = tuple(field.name for field in fields(_References))


def _references(values: FloatArray, stops: IntArray, *, width: int = REFERENCE_STEPS) -> _References:
    """For each stop the reference over the ``width`` values before it, or over as many as there are (at least one)."""
    padded = np.concatenate([np.full(width, np.inf), np.clip(values, -_VALUE_MAX, _VALUE_MAX)])
    views = sliding_window_view(padded, width)
    found = np.empty((6, len(stops)))
    for start in range(0, len(stops), _REFERENCES_AT_A_TIME):
        some = stops[start : start + _REFERENCES_AT_A_TIME]
        found[:, start : start + len(some)] = _measure(views[some], np.minimum(some, width))
    return _References(*found)


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


# The track.


@dataclass(frozen=True, eq=False)
class _Known:
    """References over a series, as they were worked out before."""

    steps: IntArray
    values: FloatArray
    stops: IntArray
    found: _References


_KNOWN: deque[_Known] = deque(maxlen=_TRACKS_KEPT)


def _references_again(steps: IntArray, values: FloatArray, stops: IntArray) -> _References:
    """:func:`_references`, of which those of a window that has slid along by a few steps are known already.

    A reference is taken over only where it is over the very same values, so this is still a function of its arguments.
    """
    if len(values) > TRACK_STEPS_MAX:
        return _references(values, stops)
    table = np.full((len(_FIELDS), len(stops)), np.nan)
    fresh = np.ones(len(stops), np.bool_)
    for known in reversed(_KNOWN):
        slid = int(np.searchsorted(known.steps, steps[0]))
        same = len(known.steps) - slid
        if not 0 < same <= len(steps) or not np.array_equal(known.steps[slid:], steps[:same]):
            continue
        if not np.array_equal(known.values[slid:], values[:same]):
            continue
        at = np.minimum(np.searchsorted(known.stops, stops + slid), len(known.stops) - 1)
        whole = (stops >= REFERENCE_STEPS) | (slid == 0)
        fresh = ~(whole & (known.stops[at] == stops + slid))
        for row, name in enumerate(_FIELDS):
            table[row] = getattr(known.found, name)[at]
        _KNOWN.remove(known)
        break
    if fresh.any():
        new = _references(values, stops[fresh])
        for row, name in enumerate(_FIELDS):
            table[row, fresh] = getattr(new, name)
    found = _References(*table)
    _KNOWN.append(_Known(steps, values, stops, found))
    return found


@lru_cache(maxsize=_TRACKS_KEPT)
def _follow(steps_bytes: bytes, values_bytes: bytes) -> Track:
    steps, values = np.frombuffer(steps_bytes, np.int64), np.frombuffer(values_bytes, np.float64)
    values = np.clip(values, -_VALUE_MAX, _VALUE_MAX)
    stride = stride_of(steps)
    needed = GAP_STEPS + (REFERENCE_STEPS if has_slid(steps, stride=stride) else REFERENCE_STEPS_MIN)
    block_of = steps // (REFRESH_STEPS * stride)
    starts = np.flatnonzero(np.diff(block_of, prepend=block_of[:1] - 1))
    starts = starts[starts >= needed]
    first_seen = int(steps[0]) if len(steps) else 0
    if not len(starts):
        none, no_steps = np.zeros(0, np.float64), np.zeros(0, np.int64)
        return Track(no_steps, none, none, none, none, no_steps, none, none, first_seen, len(steps), stride)
    begin = int(starts[0])
    references = _references_again(steps, values, starts - GAP_STEPS)
    cells = block_of[starts] // (RELEASE_STEPS // REFRESH_STEPS)
    cusum, used, releases = _accumulate(values, starts, references, cells)
    used_rows = np.repeat(used, np.diff(starts, append=len(values)))
    level, scale = references.level[used_rows], references.scale[used_rows]
    rows = np.arange(len(cusum))
    after_zero = np.where(cusum == 0.0, rows + 1, 0)
    after_zero[releases - begin] = np.maximum(after_zero[releases - begin], releases - begin)
    onset = np.minimum(np.maximum.accumulate(after_zero), rows)
    return Track(
        steps=steps[begin:],
        values=values[begin:],
        z=(values[begin:] - level) / scale,
        cusum=cusum,
        alarm=references.drifts[1][used_rows],
        onset=onset,
        level=level,
        scale=scale,
        first_seen=first_seen,
        begin=begin,
        stride=stride,
    )


def _accumulate(
    values: FloatArray, starts: IntArray, references: _References, cells: IntArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Run the CUSUM over the blocks, holding the reference while the CUSUM stands above a third of its alarm level.

    Returns the CUSUM from ``starts[0]`` on, the reference that each block used, and the rows where one that had been
    held for too long was let go. The reference of a block does not depend on what was held before it, so those of
    all blocks and their increments are computed at once; only a held block needs its increments anew.
    """
    bounds = [*starts.tolist(), len(values)]
    fresh = _increments_by_block(values, starts, references).tolist()
    alarms, cell_of = references.drifts[1].tolist(), cells.tolist()
    cusum: list[float] = []
    append = cusum.append
    used, releases = [], []
    level, block_used, held_since = 0.0, 0, -1
    alarm = alarms[0]
    held: list[float] = []
    held_from, held_to = 0, 0
    for block, (start, stop) in enumerate(pairwise(bounds)):
        armed = block > 0 and level > alarm / 3.0
        if armed and held_since >= 0:
            steps_held = start - held_since
            at_grid = cell_of[block] != cell_of[block - 1] and steps_held >= FREEZE_STEPS_MAX - RELEASE_STEPS
            if at_grid or steps_held >= FREEZE_STEPS_MAX:
                armed, level = False, 0.0
                releases.append(start)
        if not armed:
            block_used, held_since, held_to = block, -1, 0
            alarm = alarms[block]
            increments = fresh[start - bounds[0] : stop - bounds[0]]
        else:
            if held_since < 0:
                held_since = start
            if stop > held_to:
                held_from, held_to = start, bounds[min(block + _HELD_BLOCKS_AT_A_TIME, len(bounds) - 1)]
                held = _increments(values[start - 1 : held_to], references.row(block_used)).tolist()
            increments = held[start - held_from : stop - held_from]
        cap = CUSUM_CAP * alarm
        if level + INCREMENT_WINSOR * len(increments) < cap:
            for increment in increments:
                level += increment
                if level < 0.0:
                    level = 0.0
                append(level)
        else:
            for increment in increments:
                level = min(max(level + increment, 0.0), cap)
                append(level)
        used.append(block_used)
    return np.array(cusum), np.array(used), np.array(releases, np.int64)


def _increments(values: FloatArray, reference: Reference) -> FloatArray:
    """What each value but the first adds to the CUSUM."""
    whitened = reference.whiten(reference.z(values))
    return np.clip(whitened, -INCREMENT_WINSOR, INCREMENT_WINSOR) - reference.drift.slack - reference.centre


def _increments_by_block(values: FloatArray, starts: IntArray, references: _References) -> FloatArray:
    """:func:`_increments` with each block's own reference, for all blocks at once."""
    begin = int(starts[0])
    of_row = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
    level, scale, lag_1 = references.level[of_row], references.scale[of_row], references.lag_1[of_row]
    now = np.clip((values[begin:] - level) / scale, -WHITENING_WINSOR, WHITENING_WINSOR)
    before = np.clip((values[begin - 1 : -1] - level) / scale, -WHITENING_WINSOR, WHITENING_WINSOR)
    whitened = (now - lag_1 * before) / np.sqrt(1.0 - lag_1**2)
    lost = (references.drifts[0] + references.centre)[of_row]
    increments: FloatArray = np.clip(whitened, -INCREMENT_WINSOR, INCREMENT_WINSOR) - lost
    return increments
