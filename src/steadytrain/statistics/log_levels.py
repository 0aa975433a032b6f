"""A log as a level and its noise, for rules that judge by effect: how much of the progress is lost, and for how long.

It needs five rows and no long reference. What is lost is compared with the progress made so far, with the level itself
and with the noise from row to row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, IntArray, Series, Window
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import holds_start, stride_of

ROWS_MIN = 5
POINTS_MAX = 400
"""A longer log is judged by the medians of so many blocks."""

WIDTHS = ((8, 1), (30, 3), (80, 5), (200, 9))
WIDTH_MAX = 15
TAIL_ROWS = ((12, 2), (40, 3))
TAIL_SHARE = 1 / 16
FEW_ROWS = ((8, 0.3), (12, 0.6))
RATE_ROSE_RATIO = 1.5
RATE_KNOWN_RATIO = 1.25
STAGES_MAX = 8


@dataclass(frozen=True)
class Curve:
    """A logged number that should fall: ``values`` by row or block, ``level`` their running median, ``noise`` of one.

    ``starts`` says that the log holds the beginning of the run, ``stride`` how many steps lie between two rows.
    """

    steps: IntArray
    values: FloatArray
    level: FloatArray
    noise: float
    starts: bool
    stride: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def initial(self) -> float:
        """The level at which the log begins."""
        return median(self.values[: 1 if len(self) < 12 else 3])

    @property
    def best(self) -> FloatArray:
        """The lowest level up to each row."""
        lowest: FloatArray = np.minimum.accumulate(self.level)
        return lowest

    @property
    def tail_rows(self) -> int:
        """Rows that a change must last at the end of the log."""
        return next((rows for below, rows in TAIL_ROWS if len(self) < below), int(np.ceil(TAIL_SHARE * len(self))))

    @property
    def certainty(self) -> float:
        """What the bounds in noises are multiplied with: few rows give a noise that holds much of the change itself."""
        return next((share for below, share in FEW_ROWS if len(self) < below), 1.0)

    @property
    def roughness(self) -> float:
        """Von Neumann's ratio: 1 for noise without memory, near 0 where each row is near the one before."""
        spread = float(np.var(self.values))
        return float(np.mean(np.diff(self.values) ** 2)) / (2.0 * spread) if spread > 0 else 0.0

    def logarithmic(self) -> Curve | None:
        """The same on a scale of logarithms, None where a value is not positive."""
        if not (self.values > 0).all():
            return None
        return curve(Series(self.steps, np.log(self.values)), starts=self.starts, stride=self.stride)


def curve_of(window: Window, series: Series, *, falls: bool = True) -> Curve | None:
    """The finite values of ``series`` as a curve, its sign turned where it should rise; None with too few."""
    finite = np.isfinite(series.values)
    series = Series(series.steps[finite], series.values[finite] if falls else -series.values[finite])
    if len(series) < ROWS_MIN:
        return None
    stride = stride_of(series.steps)
    starts = holds_start(window.steps, stride=stride_of(window.steps)) or int(series.steps[0]) <= stride
    return curve(series, starts=starts, stride=stride)


def curve(series: Series, *, starts: bool, stride: int) -> Curve:
    """At least two finite values as a curve."""
    steps, values = _blocks(series)
    return Curve(steps, values, _running_median(values), noise_of(values), starts, stride)


def _blocks(series: Series) -> tuple[IntArray, FloatArray]:
    rows = -(-len(series) // POINTS_MAX)
    if rows == 1:
        return series.steps, series.values
    count = len(series) // rows
    head = len(series) - count * rows  # the end is what the rules look at, so the oldest rows are left over
    return series.steps[head::rows], row_medians(series.values[head:].reshape(count, rows))


def _running_median(values: FloatArray) -> FloatArray:
    width = next((width for below, width in WIDTHS if len(values) < below), WIDTH_MAX)
    half = width // 2
    padded = np.concatenate([np.full(half, np.nan), values, np.full(half, np.nan)])
    level: FloatArray = np.nanmedian(sliding_window_view(padded, width), axis=1)
    return level


def noise_of(values: FloatArray) -> float:
    """Standard deviation of a value, robust, by the changes from each to the next."""
    changes = np.diff(values)
    return MAD_TO_SIGMA * median(np.abs(changes - median(changes))) / 2**0.5


def rate_explains(window: Window, best_step: int, onset: int) -> bool:
    """Whether the learning rate rose between two steps to no more than it was before: a cycle, a warm restart."""
    rate = window.applied("learning_rate")
    before, between = rate.between(0, best_step).values, rate.between(best_step, onset).values
    if not len(before) or not len(between):
        return False
    return bool(between.max() > RATE_ROSE_RATIO * before[-1] and between.max() <= RATE_KNOWN_RATIO * before.max())


def stage_changed(window: Window, first_step: int, last_step: int) -> str | None:
    """The column of stages that changes between two steps (a curriculum, a data set, a length), None without one."""
    for name, series in window.metrics.items():
        whole = series.values[np.isfinite(series.values)]
        kinds = np.unique(whole)
        if len(whole) < 3 or not 1 < len(kinds) <= STAGES_MAX or len(kinds) > len(whole) / 3:
            continue
        turns = series.steps[1:][np.diff(series.values) != 0]
        if len(turns) < STAGES_MAX and ((turns >= first_step) & (turns <= last_step)).any():
            return name
    return None


def legs(values: FloatArray, turn: float) -> list[tuple[int, int]]:
    """The rises of at least ``turn`` from a low to the next high, as rows; between two is a fall by as much."""
    found: list[tuple[int, int]] = []
    low = high = 0
    rising = False
    for row, value in enumerate(values.tolist()):
        if rising:
            if value > values[high]:
                high = row
            elif values[high] - value >= turn:
                found.append((low, high))
                low, rising = row, False
        elif value < values[low]:
            low = row
        elif value - values[low] >= turn:
            high, rising = row, True
    return [*found, (low, high)] if rising else found


def suffix(rows: Sequence[bool] | NDArray[np.bool_]) -> int:
    """How many of the last rows hold without a gap."""
    wrong = np.flatnonzero(~np.asarray(rows, np.bool_))
    return len(rows) - (int(wrong[-1]) + 1 if len(wrong) else 0)
