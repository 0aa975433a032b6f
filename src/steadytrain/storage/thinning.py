"""Which readings are kept for how long, and which files to rewrite. Pure functions: no files, no clock.

The newest steps are kept in full. Older ones are thinned by age: one in 10 steps from ``full_steps`` on, one in 100
from ten times that age on, and so on. So every tenfold of age costs the same, and a run grows only with the logarithm
of its length. Steps near a symptom or an incident are kept in full at any age, within a bound.

Thinning keeps the first reading of a stretch of steps. Stretches nest and age as a whole, so repeated thinning gives
the same result as thinning once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import IntArray

FACTOR = 10

SCALARS_FULL_STEPS = 1_000_000
"""Scalars take under 100 bytes per step. At one step per second, eleven days are kept in full."""

TABLE_FULL_VALUES = 6_000
"""Values per row that a table keeps at full resolution: 6,000 steps of one column, 300 steps of twenty. Chosen so that
a day at level `standard` with 200 tensors stays under 50 MB (tests/storage/test_retention.py computes it)."""

TABLE_ROWS_MIN = 200
"""A table with fewer rows keeps as many values as a table with this many."""

TABLE_FULL_STEPS_MIN = 128
"""Minimum for any number of columns: the steps around a symptom must still be complete when it is raised."""

AROUND_STEPS = 64
"""Steps before and after a symptom or an incident that are kept in full."""

PART_BYTES_MAX = 128 << 20
MAPPED_BYTES_MAX = 2 * PART_BYTES_MAX
"""Most bytes that are memory-mapped for a merge, before thinning: they count as memory of the process."""

MERGED_PARTS_MIN = 4
_RECORD_HEAD_BYTES = 24


@dataclass(frozen=True)
class Held:
    """What the plan needs of a closed part: its steps, and what determines the size of a record.

    Only parts of the same ``kind`` are merged. Their ``rows`` and ``columns`` may differ; the result has all of them.
    """

    steps: IntArray
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    kind: str = ""
    head_bytes: int = _RECORD_HEAD_BYTES


@dataclass(frozen=True)
class Job:
    """Merge parts ``start`` to ``stop`` (exclusive) into one, with the readings that ``keep`` marks in each."""

    start: int
    stop: int
    keep: tuple[NDArray[np.bool_], ...]


def full_steps_of(rows: int, columns: int) -> int:
    """Number of steps that a table of that size keeps in full."""
    values = TABLE_FULL_VALUES * max(TABLE_ROWS_MIN, rows)
    return max(TABLE_FULL_STEPS_MIN, values // max(1, rows * columns))


def keep(
    steps: IntArray, *, newest: int, full_steps: int, protected: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Which of the readings at ``steps`` (ascending) are kept when ``newest`` is the last step."""
    levels = level_of(steps, newest=newest, full_steps=full_steps)
    stretch = steps // FACTOR**levels
    kept = np.ones(len(steps), np.bool_)
    kept[1:] = (levels[1:] == 0) | (levels[1:] != levels[:-1]) | (stretch[1:] != stretch[:-1])
    return kept if protected is None else kept | protected


def level_of(steps: IntArray, *, newest: int, full_steps: int) -> IntArray:
    """How far a step is thinned: one reading is kept of each ``FACTOR ** level`` steps.

    All steps of such a stretch change level together, when the last of them is old enough.
    """
    levels = np.zeros(len(steps), np.int64)
    age, length = full_steps, FACTOR
    while age <= newest - int(steps.min(initial=newest)):
        ends = (steps // length + 1) * length - 1
        levels += newest - ends >= age
        age, length = age * FACTOR, length * FACTOR
    return levels


def near(steps: IntArray, places: Sequence[int], *, readings_max: int) -> NDArray[np.bool_]:
    """Which readings lie within ``AROUND_STEPS`` of ``places``, in the order of ``places`` until ``readings_max`` is
    reached.

    At least one place always counts.
    """
    found = np.zeros(len(steps), np.bool_)
    left = max(readings_max, 2 * AROUND_STEPS + 1)
    for place in places:
        start, stop = np.searchsorted(steps, (place - AROUND_STEPS, place + AROUND_STEPS + 1))
        more = int(np.count_nonzero(~found[start:stop]))
        if more <= left:
            found[start:stop] = True
            left -= more
    return found


def plan(parts: Sequence[Held], *, newest: int, full_steps: int, places: Sequence[int] = ()) -> list[Job]:
    """What to rewrite: parts that can lose half their readings, and neighbours worth merging.

    Args:
        parts: the closed parts, oldest first.
        newest: the last step of the table or stream.
        full_steps: number of steps that are kept in full.
        places: steps whose neighbourhood is kept in full, the most important first.
    """
    if not parts:
        return []
    steps = np.concatenate([part.steps for part in parts])
    kept = keep(steps, newest=newest, full_steps=full_steps, protected=near(steps, places, readings_max=full_steps))
    masks = np.split(kept, np.cumsum([len(part.steps) for part in parts])[:-1])
    jobs: list[Job] = []
    for start, stop in _groups(parts, masks, newest=newest, full_steps=full_steps):
        jobs += _jobs(parts, masks, start, stop)
    return jobs


def _jobs(parts: Sequence[Held], masks: Sequence[NDArray[np.bool_]], start: int, stop: int) -> list[Job]:
    """Merge the newer parts of a group once there are enough; thin each other part that is due."""
    sizes = [_bytes(parts[index], masks[index]) for index in range(start, stop)]
    together = stop
    for first in range(len(sizes) - MERGED_PARTS_MIN + 1):
        # Only files of similar size, so that a large one is not rewritten for every small one that follows.
        if 2 * max(sizes[first:]) <= sum(sizes[first:]):
            together = start + first
            break
    jobs = []
    index = start
    while index < together:
        last = index
        while last < together and _is_due(masks[last]):
            last += 1
        if last > index:
            jobs.append(Job(index, last, tuple(masks[index:last])))
        index = max(last, index + 1)
    if together < stop:
        jobs.append(Job(together, stop, tuple(masks[together:stop])))
    return jobs


def _is_due(mask: NDArray[np.bool_]) -> bool:
    return len(mask) > 0 and 2 * int(np.count_nonzero(mask)) <= len(mask)


def _groups(
    parts: Sequence[Held], masks: Sequence[NDArray[np.bool_]], *, newest: int, full_steps: int
) -> list[tuple[int, int]]:
    """Neighbours that may become one part: of one level, short enough for it, and not too large."""
    groups: list[tuple[int, int]] = []
    start = 0
    for index in range(1, len(parts) + 1):
        if index < len(parts) and _may_join(parts[start : index + 1], masks[start : index + 1], newest, full_steps):
            continue
        groups.append((start, index))
        start = index
    return groups


def _may_join(parts: Sequence[Held], masks: Sequence[NDArray[np.bool_]], newest: int, full_steps: int) -> bool:
    if parts[-1].kind != parts[0].kind:
        return False
    ends = [int(part.steps[-1]) for part in parts if len(part.steps)]
    starts = [int(part.steps[0]) for part in parts if len(part.steps)]
    if ends:
        levels = level_of(np.array([ends[0], ends[-1]]), newest=newest, full_steps=full_steps)
        if levels[0] != levels[1] or 2 * (ends[-1] - starts[0]) > full_steps * FACTOR ** int(levels[0]):
            return False
    size = sum(_bytes(part, mask) for part, mask in zip(parts, masks, strict=True))
    united = _united_bytes(parts, sum(int(np.count_nonzero(mask)) for mask in masks))
    mapped = sum(_bytes(part, np.ones(len(part.steps), np.bool_)) for part in parts)
    return united <= PART_BYTES_MAX and united <= 2 * size and mapped <= MAPPED_BYTES_MAX


def _bytes(part: Held, mask: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask)) * (part.head_bytes + 4 * len(part.rows) * len(part.columns))


def _united_bytes(parts: Sequence[Held], readings: int) -> int:
    """The size of one file with the rows and columns of all parts."""
    first = parts[0]
    if all(part.rows == first.rows and part.columns == first.columns for part in parts):
        rows, columns = len(first.rows), len(first.columns)
    else:
        rows = len({row for part in parts for row in part.rows})
        columns = len({column for part in parts for column in part.columns})
    return readings * (first.head_bytes + 4 * rows * columns)
