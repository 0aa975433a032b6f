"""What "normal" was a while ago, and how far a signal has moved from it since.

Every statistical detector stands on the same lagged reference: the median and the median absolute deviation of the
512 steps that ended 64 steps ago. It lags, so that a slow divergence does not drag its own yardstick along, and it
freezes while the drift statistic is raised, so that a fault cannot become the new normal before it is reported. A
rolling mean and standard deviation do neither: in simulation they found exponential growth about as often as chance.

The whole path is a function of the window and has no memory. So that two windows that overlap agree on what they
both saw, everything that happens "every so often" happens at absolute step numbers, and a window that has slid along
is judged only where its reference is full.

A reference that lags stands above a loss that still falls, and the fall widens its scale. In the steep part of
training a spike or a shift must first make good what the loss fell in 320 steps. Not here: a trend that would take
this out, the thresholds that make an alarm (the detectors), and their calibration to a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.model import FloatArray, IntArray, Series

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
"""The newest steps that are looked at. A fault is held for at most 1000 steps and the reference needs 576 before it;
the rest lets the statistic forget where the window happened to begin."""

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

LONG_MEMORY_LAG = 10
LONG_MEMORY = 0.05

_VALUE_MAX = 1e300  # keeps differences and scales finite
_TRACKS_KEPT = 4  # the detectors of a few streams ask for the same track one after the other


@dataclass(frozen=True)
class Drift:
    """The two constants of a one-sided CUSUM: ``slack`` is lost every step, ``alarm`` is the level that alarms."""

    slack: float
    alarm: float


SHUFFLED = Drift(slack=0.5, alarm=15.0)
"""Independent batches: 0.2 to 1 false alarms in 1e5 healthy simulated steps, about 40 if strongly skewed."""

CORRELATED = Drift(slack=1.0, alarm=30.0)
"""Batches that resemble the last ones (document order): no false alarm in 25,000 steps of a real run, where
``SHUFFLED`` gave 202 in 1e5."""


@dataclass(frozen=True)
class Reference:
    """Normal, measured over some steps. ``lag_1`` is clamped to [0, 0.95]; ``lag_10`` is as measured."""

    median: float
    scale: float
    lag_1: float
    lag_10: float

    @property
    def drift(self) -> Drift:
        return CORRELATED if self.lag_10 > LONG_MEMORY else SHUFFLED

    def z(self, values: FloatArray) -> FloatArray:
        """Distance from the median in robust standard deviations."""
        return (values - self.median) / self.scale

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
    where it is zero). ``median`` and ``scale`` are those of the reference in force at the step. ``first_seen`` is the
    first step of the series, ``stride`` the optimizer steps between two of it.
    """

    steps: IntArray
    values: FloatArray
    z: FloatArray
    cusum: FloatArray
    alarm: FloatArray
    onset: IntArray
    median: FloatArray
    scale: FloatArray
    first_seen: int
    stride: int

    def __len__(self) -> int:
        return len(self.steps)


def follow(series: Series) -> Track:
    """Follow the newest ``TRACK_STEPS_MAX`` values of a series that holds only what may enter a reference.

    Pass ``window.applied(signal)``: finite values of applied steps, oldest first. A value that is not finite is left
    out here as well. 1.2 ms for 2,048 steps (one core of 2024); the same series again within a few calls, 0.01 ms.
    """
    steps, values = series.steps[-TRACK_STEPS_MAX:], series.values[-TRACK_STEPS_MAX:]
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


def newest_episode(rows: NDArray[np.bool_], *, hole_rows_max: int = 0) -> tuple[int, int] | None:
    """First and last row of the newest stretch of True, where up to ``hole_rows_max`` False in a row do not end it."""
    hits = np.flatnonzero(rows)
    if not len(hits):
        return None
    breaks = np.flatnonzero(np.diff(hits) > hole_rows_max + 1)
    first = hits[breaks[-1] + 1] if len(breaks) else hits[0]
    return int(first), int(hits[-1])


def known_first_step(steps: IntArray, row: int, *, first_seen: int, stride: int) -> int:
    """The step at which an episode that begins at ``row`` of ``steps`` is known to have been there.

    An episode that fills all that is in view (from ``first_seen`` on) began at an unknown step, and the edge of a
    sliding window would give it a new name at every look. It is then named by the first step in view after a round
    number, which stays. An episode in view of the run's start keeps its own first step.
    """
    if row > 0 or first_seen <= stride:
        return int(steps[row])
    # A power of two of about half the steps in view; the quarter keeps it from flipping when one step is missing.
    grid = stride << max(0, (len(steps) + len(steps) // 4).bit_length() - 2)
    later = np.flatnonzero(steps // grid > steps[0] // grid)
    return int(steps[later[0]]) if len(later) else int(steps[row])


@dataclass(frozen=True)
class _References:
    """Many references, one a row."""

    median: FloatArray
    scale: FloatArray
    lag_1: FloatArray
    lag_10: FloatArray

    def row(self, index: int) -> Reference:
        return Reference(
            median=float(self.median[index]),
            scale=float(self.scale[index]),
            lag_1=float(self.lag_1[index]),
            lag_10=float(self.lag_10[index]),
        )


def _references(values: FloatArray, stops: IntArray, *, width: int = REFERENCE_STEPS) -> _References:
    """For each stop the reference over the ``width`` values before it, or over as many as there are (at least one)."""
    padded = np.concatenate([np.full(width, np.inf), np.clip(values, -_VALUE_MAX, _VALUE_MAX)])
    away = sliding_window_view(padded, width)[stops]  # a copy, reworked in place below: half of the time was allocation
    counts = np.minimum(stops, width)
    median = _medians(np.sort(away, axis=1), counts)
    away -= median[:, None]
    deviations = np.abs(away)
    deviations.sort(axis=1)
    spread = MAD_TO_SIGMA * _medians(deviations, counts)
    scale = np.maximum(spread, np.maximum(SCALE_FLOOR_RELATIVE * np.abs(median), SCALE_FLOOR))
    away /= scale[:, None]
    z = np.clip(away, -REFERENCE_WINSOR, REFERENCE_WINSOR, out=away)
    # The padding stands at the left and is set to the mean, so that it adds nothing to the sums.
    real = np.arange(width) >= (width - counts)[:, None]
    z *= real
    z -= (z.sum(axis=1) / counts)[:, None]
    z *= real
    power = np.einsum("ij,ij->i", z, z)
    power[power == 0.0] = 1.0
    lag_1 = np.einsum("ij,ij->i", z[:, 1:], z[:, :-1]) / power
    lag_10 = np.einsum("ij,ij->i", z[:, LONG_MEMORY_LAG:], z[:, :-LONG_MEMORY_LAG]) / power
    return _References(median, scale, np.clip(lag_1, 0.0, AUTOCORRELATION_MAX), lag_10)


def _medians(ordered: FloatArray, counts: IntArray) -> FloatArray:
    """Row medians of sorted rows whose first ``counts`` elements count."""
    rows = np.arange(len(ordered))
    medians: FloatArray = 0.5 * (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2])
    return medians


@lru_cache(maxsize=_TRACKS_KEPT)
def _follow(steps_bytes: bytes, values_bytes: bytes) -> Track:
    steps, values = np.frombuffer(steps_bytes, np.int64), np.frombuffer(values_bytes, np.float64)
    values = np.clip(values, -_VALUE_MAX, _VALUE_MAX)
    stride = stride_of(steps)
    slid = len(steps) >= SLID_STEPS_MIN and not holds_start(steps, stride=stride)
    needed = GAP_STEPS + (REFERENCE_STEPS if slid else REFERENCE_STEPS_MIN)
    block_of = steps // (REFRESH_STEPS * stride)
    starts = np.flatnonzero(np.diff(block_of, prepend=block_of[:1] - 1))
    starts = starts[starts >= needed]
    if not len(starts):
        none, no_steps = np.zeros(0, np.float64), np.zeros(0, np.int64)
        return Track(no_steps, none, none, none, none, no_steps, none, none, first_seen=0, stride=stride)
    begin = int(starts[0])
    references = _references(values, starts - GAP_STEPS)
    cells = block_of[starts] // (RELEASE_STEPS // REFRESH_STEPS)
    cusum, used, releases = _accumulate(values, starts, references, cells)
    used_rows = np.repeat(used, np.diff(starts, append=len(values)))
    median, scale = references.median[used_rows], references.scale[used_rows]
    alarms = np.where(references.lag_10 > LONG_MEMORY, CORRELATED.alarm, SHUFFLED.alarm)
    rows = np.arange(len(cusum))
    after_zero = np.where(cusum == 0.0, rows + 1, 0)
    after_zero[releases - begin] = np.maximum(after_zero[releases - begin], releases - begin)
    onset = np.minimum(np.maximum.accumulate(after_zero), rows)
    return Track(
        steps=steps[begin:],
        values=values[begin:],
        z=(values[begin:] - median) / scale,
        cusum=cusum,
        alarm=alarms[used_rows],
        onset=onset,
        median=median,
        scale=scale,
        first_seen=int(steps[0]),
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
    fresh = _increments_by_block(values, starts, references)
    cell_of = cells.tolist()
    cusum: list[float] = []
    used, releases = [], []
    level, block_used, held_since = 0.0, 0, -1
    drift = references.row(0).drift
    held: list[float] = []
    for block, (start, stop) in enumerate(pairwise(bounds)):
        armed = block > 0 and level > drift.alarm / 3.0
        if armed and held_since >= 0:
            steps_held = start - held_since
            at_grid = cell_of[block] != cell_of[block - 1] and steps_held >= FREEZE_STEPS_MAX - RELEASE_STEPS
            if at_grid or steps_held >= FREEZE_STEPS_MAX:
                armed, level = False, 0.0
                releases.append(start)
        if not armed:
            block_used, held_since = block, -1
            drift = references.row(block).drift
            increments = fresh[start - bounds[0] : stop - bounds[0]]
        else:
            if held_since < 0:
                held_since = start
                held = _increments(values[start - 1 :], references.row(block_used)).tolist()
            increments = held[start - held_since : stop - held_since]
        cap = CUSUM_CAP * drift.alarm
        for increment in increments:
            level += increment
            if level < 0.0:
                level = 0.0
            elif level > cap:
                level = cap
            cusum.append(level)
        used.append(block_used)
    return np.array(cusum), np.array(used), np.array(releases, np.int64)


def _increments(values: FloatArray, reference: Reference) -> FloatArray:
    """What each value but the first adds to the CUSUM."""
    whitened = reference.whiten(reference.z(values))
    return np.clip(whitened, -INCREMENT_WINSOR, INCREMENT_WINSOR) - reference.drift.slack


def _increments_by_block(values: FloatArray, starts: IntArray, references: _References) -> list[float]:
    """:func:`_increments` with each block's own reference, for all blocks at once."""
    begin = int(starts[0])
    of_row = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
    median, scale, lag_1 = references.median[of_row], references.scale[of_row], references.lag_1[of_row]
    now = np.clip((values[begin:] - median) / scale, -WHITENING_WINSOR, WHITENING_WINSOR)
    before = np.clip((values[begin - 1 : -1] - median) / scale, -WHITENING_WINSOR, WHITENING_WINSOR)
    whitened = (now - lag_1 * before) / np.sqrt(1.0 - lag_1**2)
    slack = np.where(references.lag_10 > LONG_MEMORY, CORRELATED.slack, SHUFFLED.slack)[of_row]
    increments: list[float] = (np.clip(whitened, -INCREMENT_WINSOR, INCREMENT_WINSOR) - slack).tolist()
    return increments
