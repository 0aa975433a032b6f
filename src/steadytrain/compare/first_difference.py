"""The first step and tensor in which two runs that should be equal differ, bit for bit.

Within a step the search follows execution order: weights, batch, forward, loss, backward, clipping, settings, update.
It skips what only one run measured at a step, because levels and cadences may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import GRADIENT_ABSENT, IntArray, Table, Window
from steadytrain.storage.run_folder import Run

PHASES: Mapping[str, tuple[str, ...]] = {
    "weights": ("parameter_norm",),
    "batch": ("samples", "tokens", "epoch"),
    "forward": ("modules",),
    "loss": ("loss",),
    "backward": ("gradients", "gradient_norm", "overflow_share", "loss_scale"),
    "clipping": ("gradient_norm_applied", "clip_coefficient"),
    "settings": ("learning_rate",),
    "update": ("weight", "first_moment", "second_moment", "update"),
}
"""Phase -> its signals and tables, in the order of a step."""

_EXACT = ("norm", "min", "max", "mean", "std", "abs_max", "nonfinite")
_KINDS = ("first_moment", "second_moment", "gradient", "weight")
NAMES_MAX = 16


@dataclass(frozen=True)
class Divergence(JsonValue):
    """The point where two runs diverge. ``tensor`` is None for a signal of the whole step. ``also`` holds further
    tensors that differ in the same signal of the same step, ``also_count`` their number."""

    stream: str
    step: int
    phase: str
    signal: str
    tensor: str | None
    left: float
    right: float
    also: tuple[str, ...] = ()
    also_count: int = 0


@dataclass(frozen=True)
class Agreement:
    """The comparison of two runs. ``first`` is None if every bit that both recorded is equal."""

    shared_steps: int
    first: Divergence | None
    last_equal_step: int | None
    notes: tuple[str, ...]


def agreement(left: Run, right: Run) -> Agreement:
    """Compare all common streams at all steps that both runs recorded.

    Raises:
        UsageError: a run folder is damaged.
    """
    notes: list[str] = []
    found: list[Divergence] = []
    shared = 0
    last_equal: int | None = None
    streams = [stream for stream in left.streams() if stream in right.streams()]
    for stream in sorted({*left.streams(), *right.streams()} - set(streams)):
        notes.append(f"only one of the two runs has the stream {stream}")
    for stream in streams:
        windows = left.scalars(stream), right.scalars(stream)
        steps = np.intersect1d(windows[0].steps, windows[1].steps)
        if stream == streams[0]:
            shared = len(steps)
            notes += _lengths(windows[0], windows[1])
        first = _first_in_stream(left, right, stream, windows, notes)
        if first is not None:
            found.append(first)
        if stream == streams[0]:
            before = steps if first is None else steps[steps < first.step]
            last_equal = int(before[-1]) if len(before) else None
    earliest = min(found, key=lambda divergence: divergence.step, default=None)
    return Agreement(shared, earliest, last_equal, tuple(notes))


def _lengths(left: Window, right: Window) -> list[str]:
    if len(left) and len(right) and left.steps[-1] != right.steps[-1]:
        return [
            f"the runs end at different steps ({left.steps[-1]:,} and {right.steps[-1]:,}): shared ones are compared"
        ]
    return []


def _first_in_stream(
    left: Run, right: Run, stream: str, windows: tuple[Window, Window], notes: list[str]
) -> Divergence | None:
    candidates = [*_signals(stream, *windows)]
    for name in ("gradients", "modules", "tensors"):
        if name in left.tables(stream) and name in right.tables(stream):
            tables = left.table(name, stream), right.table(name, stream)
            only = sorted(set(tables[0].rows) ^ set(tables[1].rows))
            if only and name != "modules":
                note = f"{len(only)} tensors are in only one of the two runs ({only[0]}, ...)"
                notes += [note] if note not in notes else []
            candidates += _cells(stream, *tables)
    order = list(PHASES)
    return min(candidates, key=lambda found: (found.step, order.index(found.phase), found.tensor is None), default=None)


def _signals(stream: str, left: Window, right: Window) -> Iterator[Divergence]:
    _, at, other = np.intersect1d(left.steps, right.steps, return_indices=True)
    for phase, names in PHASES.items():
        for name in names:
            if name not in left.signals or name not in right.signals:
                continue
            both = left.present[name][at] & right.present[name][other]
            ours, theirs = left.signals[name][at], right.signals[name][other]
            position = _first(both & _bits_differ(ours, theirs))
            if position is not None:
                step = int(left.steps[at[position]])
                yield Divergence(stream, step, phase, name, None, float(ours[position]), float(theirs[position]))


def _cells(stream: str, left: Table, right: Table) -> Iterator[Divergence]:
    """The first difference of each phase that a table covers."""
    rows = [row for row in left.rows if row in set(right.rows)]
    columns = [column for column in left.columns if column in right.columns and _is_exact(left.name, column)]
    steps, at, other = _last_readings(left.steps, right.steps)
    if not rows or not columns or not len(steps):
        return
    places = [[table.rows.index(row) for row in rows] for table in (left, right)]
    by_phase: dict[str, list[str]] = {}
    for column in columns:
        by_phase.setdefault(_phase(left.name, column), []).append(column)
    for phase, of_phase in by_phase.items():
        first: tuple[int, str, NDArray[np.bool_]] | None = None
        for column in of_phase:
            ours = left.values[at][:, places[0], left.columns.index(column)]
            theirs = right.values[other][:, places[1], right.columns.index(column)]
            apart = _bits_differ(ours, theirs) & _measured(left.name, ours, theirs)
            position = _first(np.asarray(apart.any(axis=1)))
            if position is not None and (first is None or position < first[0]):
                first = position, column, apart[position]
        if first is not None:
            position, column, here = first
            names = [rows[index] for index in np.flatnonzero(here)]
            row = rows.index(names[0])
            ours = left.values[at[position], places[0][row], left.columns.index(column)]
            theirs = right.values[other[position], places[1][row], right.columns.index(column)]
            yield Divergence(
                stream,
                int(steps[position]),
                phase,
                f"{left.name}.{column}",
                names[0],
                float(ours),
                float(theirs),
                tuple(names[1 : NAMES_MAX + 1]),
                len(names) - 1,
            )


def _last_readings(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The steps that both have, and the position of each one's last reading."""
    last = [{int(step): at for at, step in enumerate(steps)} for steps in (left, right)]
    steps = sorted(set(last[0]) & set(last[1]))
    at, other = ([side[step] for step in steps] for side in last)
    return np.array(steps, np.int64), np.array(at, np.int64), np.array(other, np.int64)


def _is_exact(table: str, column: str) -> bool:
    """Whether a column covers every element. Each run draws its own samples, so sampled columns are not comparable."""
    return table == "gradients" or (column.endswith(_EXACT) and not column.startswith("update"))


def _phase(table: str, column: str) -> str:
    if table == "modules":
        return "forward"
    kind = next((kind for kind in _KINDS if column.startswith(kind)), "gradient")
    return "backward" if table == "gradients" or kind == "gradient" else "update"


def _measured(table: str, ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[np.bool_]:
    if table == "gradients":  # NaN is a measured value there, and absent gradients have their own mark
        return np.asarray((ours != GRADIENT_ABSENT) | (theirs != GRADIENT_ABSENT))
    return np.asarray(~np.isnan(ours) & ~np.isnan(theirs))


def _bits_differ(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[np.bool_]:
    """Compare float32 bits, the stored format: a NaN equals the same NaN, and 0 differs from -0."""
    with np.errstate(over="ignore"):
        pair = [np.ascontiguousarray(side, np.float32).view(np.uint32) for side in (ours, theirs)]
    return np.asarray(pair[0] != pair[1])


def _first(flags: NDArray[np.bool_] | Sequence[bool]) -> int | None:
    positions = np.flatnonzero(flags)
    return int(positions[0]) if len(positions) else None
