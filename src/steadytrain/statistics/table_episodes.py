"""Tables of readings against a bound: which rows were beyond it for how long, and what the loss did meanwhile.

A table is read every 50 steps, or at every step near a symptom, so readings are unevenly spaced. A slow fault is judged
on readings that are some steps apart (:func:`apart`), or else 64 steps in a row would count as much as the 3,000
before. An onset uses an absolute bound wherever possible: a reference that begins where the window begins would move
with the window, and the onset with it. Not here: any bound (the detectors).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import Cells, FloatArray, IntArray, Window
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import holds_start, stride_of

APART_STEPS = 16
"""Readings of a slow fault are at least about this far apart: one in each window of this many steps counts."""

NAMES_MAX = 16
"""Names listed in a symptom; the count of all is among its numbers. Fits a screen."""

HOLE_READINGS_MAX = 2
"""Readings within the bound that an episode may hold and still be one."""

SKIPS_MIN = 3
"""Skips in a row from which a gradient scaler is not looking for its scale any more."""

LIVE_STEPS_MAX = 2048
"""A window of a live run holds no more steps; a longer one is a whole log and does not slide."""

COARSE_SHARE = 0.8
"""Of the tensors that tell: norms are often kept in float32 beside weights in bfloat16."""

LOSS_POINTS = 64
TAIL_SHARE, TAIL_TO_SIGMA = 0.05, 1.96
"""A twentieth of a normal distribution is beyond 1.96 standard deviations."""

LOSS_POINTS_MIN = 5


@dataclass(frozen=True)
class Episode:
    """A stretch of readings, positions ``first`` to ``last``, in which the rows at ``positions`` were beyond a bound.

    ``rows`` are the names of these rows: in the order of their beginning, then of the table. ``seen_step`` is the first
    of its steps in view; ``first_step`` may be another where it began before that.
    """

    first: int
    last: int
    seen_step: int
    first_step: int
    last_step: int
    positions: IntArray
    rows: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.rows[:NAMES_MAX]

    def when(self) -> str:
        same = self.first_step == self.last_step
        return f"at step {self.first_step}" if same else f"from step {self.first_step} to {self.last_step}"

    def who(self, what: str) -> str:
        """``rows[0]``, or how many there are and which came first."""
        first = self.rows[0] or "the model's output"
        return first if len(self.rows) == 1 else f"{len(self.rows)} {what} ({first} first)"


def applied_cells(window: Window, table: str, column: str, *, apart_steps: int = 1) -> Cells | None:
    """A column of a table without the readings of skipped and refused steps; None where nothing is left.

    With ``apart_steps`` only the first reading in each stretch of so many steps, counted from step 0.
    """
    return _cells(window, table, column, window.skipped | window.refused, apart_steps)


def unskipped_cells(window: Window, table: str, column: str) -> Cells | None:
    """The same with refused steps: what a step was refused for is in its own reading.

    So are the readings of steps that a gradient scaler skipped, if it skipped ``SKIPS_MIN`` or more in a row: that is
    no search for a scale any more.
    """
    left_out = np.zeros(len(window), np.bool_)
    for start, stop in stretches(window.skipped):
        left_out[start:stop] = stop - start < SKIPS_MIN
    return _cells(window, table, column, left_out, 1)


def all_cells(window: Window, table: str, column: str, *, apart_steps: int = 1) -> Cells | None:
    """The same with every reading: for what the forward pass shows, whatever became of the step."""
    return _cells(window, table, column, np.zeros(len(window), np.bool_), apart_steps)


def _cells(window: Window, table: str, column: str, left_out: NDArray[np.bool_], apart_steps: int) -> Cells | None:
    held = window.tables.get(table)
    if held is None or column not in held.columns or not len(held) or not held.values.shape[1]:
        return None
    kept = apart(held.steps, apart_steps)
    if left_out.any():
        kept = kept[~np.isin(held.steps[kept], window.steps[left_out])]
    steps, values = held.steps, held.values[:, :, held.columns.index(column)]
    if len(kept) < len(steps):
        steps, values = steps[kept], values[kept]
    here = ~np.isnan(values).all(axis=1)
    if not here.all():
        steps, values = steps[here], values[here]
    return Cells(steps, held.rows, values.astype(np.float64)) if len(steps) else None


def apart(steps: IntArray, apart_steps: int) -> IntArray:
    """Positions of the first step in each stretch of ``apart_steps`` steps. Stretches are counted from step 0."""
    if apart_steps <= 1 or not len(steps):
        return np.arange(len(steps))
    cell = steps // apart_steps
    return np.flatnonzero(np.diff(cell, prepend=cell[0] - 1))


def sustained(beyond: NDArray[np.bool_], measured: NDArray[np.bool_], readings: int) -> NDArray[np.bool_]:
    """``beyond`` without what lasted fewer than ``readings`` measured readings in a row, row by row.

    Both have shape ``(readings, rows)``. A reading that was not measured neither counts nor ends anything.
    """
    kept = np.zeros_like(beyond)
    for row in np.flatnonzero((beyond & measured).sum(axis=0) >= readings):
        at = np.flatnonzero(measured[:, row])
        for start, stop in stretches(beyond[at, row]):
            if stop - start >= readings:
                kept[at[start] : at[stop - 1] + 1, row] = True
    return kept


def stretches(rows: NDArray[np.bool_], *, hole_max: int = 0) -> list[tuple[int, int]]:
    """Stretches of True as (start, stop), oldest first, where up to ``hole_max`` False in a row do not end one."""
    hits = np.flatnonzero(rows)
    if not len(hits):
        return []
    breaks = np.flatnonzero(np.diff(hits) > hole_max + 1)
    starts, stops = hits[np.append(0, breaks + 1)], hits[np.append(breaks, len(hits) - 1)] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def episodes(window: Window, cells: Cells, beyond: NDArray[np.bool_], *, readings: int = 1) -> list[Episode]:
    """The stretches in which some row of ``cells`` was beyond the bound for at least ``readings`` readings in a row.

    ``beyond`` has the shape of ``cells.values``. Nothing beyond costs next to nothing.
    """
    if not beyond.any():
        return []
    kept = sustained(beyond, ~np.isnan(cells.values), readings) if readings > 1 else beyond
    found = []
    for start, stop in stretches(np.logical_or.reduce(kept, axis=1), hole_max=HOLE_READINGS_MAX):
        inside = kept[start:stop]
        positions = np.flatnonzero(inside.any(axis=0))
        positions = positions[np.argsort(inside[:, positions].argmax(axis=0), kind="stable")]
        found.append(
            Episode(
                first=start,
                last=stop - 1,
                seen_step=int(cells.steps[start]),
                first_step=known_first_reading(window, cells.steps, start, last=stop - 1),
                last_step=int(cells.steps[stop - 1]),
                positions=positions,
                rows=tuple(cells.rows[position] for position in positions),
            )
        )
    return found


def known_first_reading(window: Window, steps: IntArray, position: int, *, last: int | None = None) -> int:
    """The step at which an episode that begins at ``position`` of the readings ``steps`` is known to have been there.

    As :func:`steadytrain.statistics.rolling_baseline.known_first_step`, for readings: one that fills all that is in
    view began at an unknown step, and is named by the first reading after a round step number, which stays as the
    window slides, or by its last one (at position ``last``) if it ends before. A window too long to slide begins where
    its log does.
    """
    if position > 0 or len(window) > LIVE_STEPS_MAX or holds_start(window.steps, stride=stride_of(window.steps)):
        return int(steps[position])
    span = int(window.steps[-1] - window.steps[0]) + 1
    grid = 1 << max(0, (span + span // 4).bit_length() - 2)
    later = np.flatnonzero(steps // grid > steps[0] // grid)
    named = int(steps[later[0]]) if len(later) else int(steps[0])
    return named if last is None else min(named, int(steps[last]))


def before(values: FloatArray, at: IntArray, *, width: int, gap: int, least: int) -> tuple[FloatArray, FloatArray]:
    """Median and robust deviation of the ``width`` values that ended ``gap`` before each position in ``at``.

    Infinite where there are fewer than ``least`` of them. Only for positions that are worth it: 128 values are sorted
    in 10 us.
    """
    padded = np.concatenate([np.full(width + gap, np.nan), values])
    earlier = sliding_window_view(padded, width)[at]
    median, scale = np.full(len(at), np.inf), np.full(len(at), np.inf)
    counts = (~np.isnan(earlier)).sum(axis=1)
    # Whole references first: a median that looks for NaN takes several times as long.
    for rows, middle in ((counts == width, np.median), ((counts >= least) & (counts < width), np.nanmedian)):
        if rows.any():
            median[rows] = middle(earlier[rows], axis=1)
            scale[rows] = MAD_TO_SIGMA * middle(np.abs(earlier[rows] - median[rows, None]), axis=1)
    return median, scale


def loss_change(window: Window, first_step: int, last_step: int) -> float:
    """By how many robust standard deviations the loss at the end of an episode is above that before it.

    Without steps before the episode, its first steps are used instead. 0 where too little is known; Inf where the last
    loss of all is not finite.
    """
    steps, values = _losses(window, last_step)
    if len(values) and not np.isfinite(values[-1]):
        return np.inf
    steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
    start = int(np.searchsorted(steps, first_step))
    before, during = values[max(0, start - LOSS_POINTS) : start], values[start:]
    if len(before) < LOSS_POINTS_MIN:
        half = min(LOSS_POINTS, len(during) // 2)
        before, during = during[:half], during[half:]
    during = during[-LOSS_POINTS:]
    if len(before) < LOSS_POINTS_MIN or len(during) < LOSS_POINTS_MIN:
        return 0.0
    return _scales(median(during), before)


def loss_jump(window: Window, first_step: int, last_step: int) -> float:
    """By how many robust standard deviations the highest loss of these steps is above the median before them.

    Where the loss has a heavy tail (most batches are easy, and now and then one is not) its tail is the measure. 0
    where too little is known; Inf where a loss among them is not finite.
    """
    steps, values = _losses(window, last_step)
    start = int(np.searchsorted(steps, first_step))
    before, during = values[max(0, start - LOSS_POINTS) : start], values[start:]
    before = before[np.isfinite(before)]
    if not np.isfinite(during).all():
        return np.inf
    if len(before) < LOSS_POINTS_MIN or not len(during):
        return 0.0
    level = median(before)
    scale = max(_noise(before), _tail_noise(before), 1e-3 * abs(level), 1e-9)
    return (float(during.max()) - level) / scale


def _losses(window: Window, last_step: int) -> tuple[IntArray, FloatArray]:
    """The losses of unskipped steps up to ``last_step``."""
    loss = window.series("loss")
    kept = loss.steps <= last_step
    if window.skipped.any():
        kept &= ~np.isin(loss.steps, window.steps[window.skipped])
    return loss.steps[kept], loss.values[kept]


def _scales(value: float, before: FloatArray) -> float:
    level = median(before)
    return (value - level) / max(_noise(before), 1e-3 * abs(level), 1e-9)


def _noise(values: FloatArray) -> float:
    """Robust standard deviation from point to point, which a trend does not inflate."""
    return MAD_TO_SIGMA / 2**0.5 * median(np.abs(np.diff(values)))


def _tail_noise(values: FloatArray) -> float:
    """The same by the largest twentieth of the differences: equal to it for normal noise, larger for a heavy tail."""
    return float(np.quantile(np.abs(np.diff(values)), 1 - TAIL_SHARE)) / (TAIL_TO_SIGMA * 2**0.5)


def is_coarse(window: Window) -> bool:
    """Whether the parameters are held in bfloat16 or float16: in the newest reading their extremes are such numbers.

    One number in float32 passes by chance once in 2**13 times; 0 and 1, at which norms and biases begin, say nothing.
    """
    held = window.tables.get("tensors")
    if held is None or not len(held) or not {"weight_min", "weight_max"} <= set(held.columns):
        return False
    at = [held.columns.index("weight_min"), held.columns.index("weight_max")]
    values = held.values[:, :, at]
    read = np.flatnonzero(np.isfinite(values).any(axis=(1, 2)))
    if not len(read):
        return False
    newest = values[read[-1]]
    telling = np.isfinite(newest) & (newest != 0.0) & (np.abs(newest) != 1.0)
    if not telling.any():
        return False
    bits = newest[telling].view(np.uint32)
    bfloat16, float16 = (bits & 0xFFFF) == 0, (bits & 0x1FFF) == 0
    return bool(np.mean(bfloat16 | float16) >= COARSE_SHARE)
