"""Compare a log with a healthy one: their levels at the same steps, and from which step on they differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import FloatArray, Series, Window
from steadytrain.statistics.log_levels import Curve, curve_of, suffix

SIGNALS = ("loss", "gradient_norm", "learning_rate")
METRICS_MAX = 6
POINTS_MAX = 12
STEPS_SHARE_MIN = 0.5
"""If less than this share of the rows lies within the reference's steps, rows are compared by position."""

AWAY_SHARE = 0.1
AWAY_SCALES = 5.0
"""Levels differ if their distance exceeds a tenth, and five standard deviations of a row of both."""


@dataclass(frozen=True)
class PointBeside(JsonValue):
    """The level of a log and of the reference at a step. ``reference`` is None if the reference lacks that step."""

    step: int
    value: float
    reference: float | None


@dataclass(frozen=True)
class SignalBeside(JsonValue):
    """A column of both: at most 12 points over the log, and the step from which it differs until the end."""

    name: str
    differs_from_step: int | None
    points: tuple[PointBeside, ...]


@dataclass(frozen=True)
class LogReference(JsonValue):
    """A log compared with a healthy one. ``aligned`` is "steps", or "rows" if they share too few steps."""

    run: str
    path: str
    aligned: str
    signals: tuple[SignalBeside, ...]


def beside(window: Window, reference: Window, *, run: str, path: str) -> LogReference:
    """The levels of every column that both logs have. Skips columns with fewer than five rows."""
    names = [name for name in SIGNALS if window.has(name) and reference.has(name)]
    both = {name: (window.series(name), reference.series(name)) for name in names}
    shared = [name for name in window.metrics if name in reference.metrics]
    both |= {name: (window.metrics[name], reference.metrics[name]) for name in shared[:METRICS_MAX]}
    by_steps = _same_steps(window, reference)
    found = (_signal(name, window, reference, pair, by_steps=by_steps) for name, pair in both.items())
    signals = tuple(signal for signal in found if signal is not None)
    return LogReference(run, path, "steps" if by_steps else "rows", signals)


def _same_steps(window: Window, reference: Window) -> bool:
    if not len(window) or not len(reference):
        return False
    inside = (window.steps >= reference.steps[0]) & (window.steps <= reference.steps[-1])
    return bool(inside.mean() >= STEPS_SHARE_MIN)


def _signal(
    name: str, window: Window, reference: Window, pair: tuple[Series, Series], *, by_steps: bool
) -> SignalBeside | None:
    one, other = curve_of(window, pair[0]), curve_of(reference, pair[1])
    if one is None or other is None:
        return None
    expected = _at(one, other, by_steps=by_steps)
    points = np.unique(np.linspace(0, len(one) - 1, POINTS_MAX).round().astype(np.int64)).tolist()
    bound = np.maximum(AWAY_SHARE * np.abs(expected), AWAY_SCALES * float(np.hypot(one.noise, other.noise)))
    known = np.isfinite(expected)
    lasting = suffix((np.abs(one.level - expected) > bound)[known])
    differs = lasting >= one.tail_rows
    return SignalBeside(
        name,
        int(one.steps[known][-lasting]) if differs else None,
        tuple(
            PointBeside(int(one.steps[row]), float(one.level[row]), float(expected[row]) if known[row] else None)
            for row in points
        ),
    )


def _at(one: Curve, other: Curve, *, by_steps: bool) -> FloatArray:
    """The reference's level at each row of the log, NaN outside its steps."""
    if not by_steps:
        places = np.linspace(0.0, 1.0, len(one))
        rows: FloatArray = np.interp(places, np.linspace(0.0, 1.0, len(other)), other.level)
        return rows
    outside = float("nan")
    levels: FloatArray = np.interp(one.steps, other.steps, other.level, left=outside, right=outside)
    return levels
