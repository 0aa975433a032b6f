"""What "normal" was a while ago, and how far a signal has moved from it since.

Every statistical detector uses the same lagged reference: the median and the median absolute deviation of the 512 steps
that ended 64 steps ago. It lags, so that a slow divergence does not drag its own yardstick along, and it freezes while
the drift statistic is raised, so that a fault cannot become the new normal before it is reported. A rolling mean and
standard deviation do neither: in simulation they found exponential growth about as often as chance.

The whole path is a function of the window and has no memory. So that two windows that overlap agree on what they
both saw, a live one that slides along and a whole log, everything that happens "every so often" happens at absolute
step numbers, nothing is held for longer than 1000 steps, and a window that has slid along is judged only where its
reference is full.

Not here: how a reference is measured (``reference``), the thresholds that make an alarm (the detectors), and their
calibration to a run (``calibration``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Series
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import (
    FIELDS,
    REFERENCE_STEPS,
    VALUE_MAX,
    WHITENING_WINSOR,
    Reference,
    References,
    references_before,
)

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

INCREMENT_WINSOR = 4.0  # bound on what one step may add to the CUSUM
CUSUM_CAP = 2.0  # in alarm levels: an alarm ends within some tens of steps of the recovery, not after hundreds

_TRACKS_KEPT = 3  # the detectors of a stream ask for the same tracks one after the other
_HELD_BLOCKS_AT_A_TIME = 64  # about as long as a reference may be held


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
    """Number of optimizer steps from one logged step to the next: 1 in a live run, often 10 or 50 in a log."""
    if len(steps) < 2:
        return 1
    apart = steps[1:] - steps[:-1]
    first = int(apart[0])
    return max(1, first if (apart == first).all() else int(median(apart)))


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


@dataclass(frozen=True, eq=False)
class _Known:
    """References over a series, as they were worked out before."""

    steps: IntArray
    values: FloatArray
    stops: IntArray
    found: References


_KNOWN: deque[_Known] = deque(maxlen=_TRACKS_KEPT)


def _references_again(steps: IntArray, values: FloatArray, stops: IntArray) -> References:
    """:func:`references_before`, of which those of a window that has slid along by a few steps are known already.

    A reference is taken over only where it is over the very same values, so this is still a function of its arguments.
    """
    if len(values) > TRACK_STEPS_MAX:
        return references_before(values, stops)
    table = np.full((len(FIELDS), len(stops)), np.nan)
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
        for row, name in enumerate(FIELDS):
            table[row] = getattr(known.found, name)[at]
        _KNOWN.remove(known)
        break
    if fresh.any():
        new = references_before(values, stops[fresh])
        for row, name in enumerate(FIELDS):
            table[row, fresh] = getattr(new, name)
    found = References(*table)
    _KNOWN.append(_Known(steps, values, stops, found))
    return found


@lru_cache(maxsize=_TRACKS_KEPT)
def _follow(steps_bytes: bytes, values_bytes: bytes) -> Track:
    steps, values = np.frombuffer(steps_bytes, np.int64), np.frombuffer(values_bytes, np.float64)
    values = np.clip(values, -VALUE_MAX, VALUE_MAX)
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
    values: FloatArray, starts: IntArray, references: References, cells: IntArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Run the CUSUM over the blocks, holding the reference while the CUSUM is above a third of its alarm level.

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
                level += increment
                if level < 0.0:
                    level = 0.0
                elif level > cap:
                    level = cap
                append(level)
        used.append(block_used)
    return np.array(cusum), np.array(used), np.array(releases, np.int64)


def _increments(values: FloatArray, reference: Reference) -> FloatArray:
    """What each value but the first adds to the CUSUM."""
    whitened = reference.whiten(reference.z(values))
    return np.clip(whitened, -INCREMENT_WINSOR, INCREMENT_WINSOR) - reference.drift.slack - reference.centre


def _increments_by_block(values: FloatArray, starts: IntArray, references: References) -> FloatArray:
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
