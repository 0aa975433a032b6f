"""Short and sparse logs with labels by construction: every k-th row, the first or the middle rows of simulated runs.

A faulty log shows its fault: it begins after a few rows and before the last ones. The same curves without it, and those
of ways to train whose loss may rise, are the healthy ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import Series, Window
from steadytrain.testing import steps

Values = NDArray[np.float64]
ROWS = (5, 20, 60, 200)
STRIDES = (1, 10, 50, 500)
EARLIEST, LATEST = 0.3, 0.7
"""Where in a log a fault begins, as a share of its rows."""

Draw = np.random.Generator


@dataclass(frozen=True)
class ShortLog:
    """A log, the fault in it ("" for none), and how it was cut."""

    name: str
    window: Window
    faulty: bool


def noise(draw: Draw, count: int) -> Values:
    """Relative noise of a row: Gaussian, correlated, or with heavy tails; of one to six percent."""
    sigma = float(np.exp(draw.uniform(np.log(0.01), np.log(0.06))))
    kind = int(draw.integers(3))
    if kind == 0:
        return sigma * draw.standard_normal(count)
    if kind == 1:
        values = draw.standard_normal(count)
        for row in range(1, count):
            values[row] += 0.3 * values[row - 1]
        return sigma * values
    return sigma * draw.standard_t(5, count)


def falling(draw: Draw, count: int, stride: int, *, excerpt: bool) -> Values:
    """The level of a run that learns: a power law from its start, or its stationary end."""
    start, floor = draw.uniform(2.0, 11.0), draw.uniform(0.1, 1.5)
    scale = draw.uniform(0.02, 0.3) * count * stride
    at = stride * np.arange(count) + (draw.uniform(3.0, 30.0) * scale if excerpt else 0.0)
    level: Values = floor + (start - floor) * (1.0 + at / scale) ** -draw.uniform(0.5, 1.2)
    return level


def _after(draw: Draw, count: int) -> tuple[int, Values]:
    onset = max(2 if count < 12 else 3, int(draw.uniform(EARLIEST, LATEST) * count))
    onset = min(onset, count - (2 if count < 12 else 3))
    return onset, np.clip(np.arange(count) - onset + 1, 0, None).astype(np.float64)


def multiplied(draw: Draw, level: Values) -> Values:
    _, after = _after(draw, len(level))
    changed: Values = np.where(after > 0, draw.uniform(2.5, 10.0) * level, level)
    return changed


def never_back(draw: Draw, level: Values) -> Values:
    onset, after = _after(draw, len(level))
    lost = draw.uniform(0.7, 0.95) * (level[0] - level[onset - 1])
    changed: Values = np.where(after > 0, np.maximum(level, level[onset - 1] + max(lost, level[onset - 1])), level)
    return changed


def ramp(draw: Draw, level: Values) -> Values:
    onset, after = _after(draw, len(level))
    rate = np.log(draw.uniform(3.0, 30.0)) / max(1, len(level) - onset)
    changed: Values = level * np.exp(np.minimum(rate * after, 20.0))
    return changed


def above_start(draw: Draw, level: Values) -> Values:
    rows = np.arange(len(level))
    changed: Values = level[0] * (1.0 + draw.uniform(0.5, 5.0) * (1.0 - np.exp(-rows / (0.3 * len(level)))))
    return changed


def slow_swings(draw: Draw, level: Values) -> Values:
    waves = draw.uniform(2.5, 5.0)
    changed: Values = level[0] * np.exp(
        draw.uniform(0.3, 0.9) * np.sin(np.linspace(0.0, 2 * np.pi * waves, len(level)))
    )
    return changed


def wild_swings(draw: Draw, level: Values) -> Values:
    changed: Values = level[0] * np.exp(draw.uniform(0.6, 1.2) * (draw.standard_normal(len(level)) + 0.7))
    changed[0] = level[0]
    return changed


def at_the_guess(draw: Draw, level: Values) -> Values:
    return np.full(len(level), np.log(draw.choice([2, 10, 100, 1000, 50257])))


def stationary(draw: Draw, level: Values) -> Values:
    return np.full(len(level), level[-1])


def staircase(draw: Draw, level: Values) -> Values:
    at = (np.arange(len(level)) * draw.integers(3, 7)) // len(level)
    return level * 0.85**at


def batch_one(draw: Draw, level: Values) -> Values:
    return level * np.exp(draw.uniform(0.7, 1.2) * draw.standard_normal(len(level)))


def single_rows(draw: Draw, level: Values) -> Values:
    changed = level.copy()
    at = draw.integers(1, len(level) - 1, max(1, len(level) // 100))
    changed[at] *= draw.uniform(1.3, 2.0, len(at))
    return changed


Change = Callable[[Draw, Values], Values]
FAULTS: Mapping[str, tuple[Change, int, bool]] = {
    "multiplied": (multiplied, 5, True),
    "never back": (never_back, 5, True),
    "ramp": (ramp, 5, True),
    "above its start": (above_start, 5, False),
    "slow swings": (slow_swings, 20, False),
    "wild swings": (wild_swings, 20, False),
    "at the guess": (at_the_guess, 20, False),
}
"""The change, the fewest rows in which it can be seen, and whether an excerpt shows it."""

HEALTHY: Mapping[str, tuple[Change, bool]] = {
    "falls": (lambda draw, level: level, True),
    "stationary": (stationary, True),
    "staircase of epochs": (staircase, False),
    "batch size one": (batch_one, True),
    "single high rows": (single_rows, True),
}


def _window(draw: Draw, level: Values, stride: int, *, excerpt: bool, quiet: bool = False, **more: Values) -> Window:
    share = noise(draw, len(level)) * (0.2 if quiet else 1.0)
    first = stride * int(draw.integers(50, 500)) if excerpt else int(draw.choice([0, 1, stride]))
    return steps(loss=np.abs(level * (1.0 + share)), first_step=first, stride=stride, **more)


def of_losses(rows: int, seeds: int) -> Iterator[ShortLog]:
    """Logs with nothing but a loss: every kind, cut and stride."""
    for seed in range(seeds):
        for place, (name, (change, least, cut)) in enumerate(FAULTS.items()):
            draw = np.random.default_rng([seed, rows, place])
            stride = int(draw.choice(STRIDES)) if name != "at the guess" else int(draw.choice(STRIDES[1:]))
            excerpt = bool(cut and draw.integers(2))
            level = change(draw, falling(draw, rows, stride, excerpt=excerpt))
            if rows >= least:
                quiet = name == "at the guess"
                yield ShortLog(name, _window(draw, level, stride, excerpt=excerpt, quiet=quiet), True)
        for place, (name, (change, cut)) in enumerate(HEALTHY.items()):
            draw = np.random.default_rng([seed, rows, 100 + place])
            stride = int(draw.choice(STRIDES)) if name != "single high rows" else 1
            excerpt = name == "stationary" or bool(cut and draw.integers(2))
            level = change(draw, falling(draw, rows, stride, excerpt=excerpt))
            yield ShortLog(name, _window(draw, level, stride, excerpt=excerpt), False)


def with_more(rows: int, seeds: int) -> Iterator[ShortLog]:
    """Logs with a gradient norm, a rate, stages or evaluations, faulty and healthy."""
    for seed in range(seeds):
        draw = np.random.default_rng([seed, rows, 1000])
        stride = int(draw.choice(STRIDES))
        level = falling(draw, rows, stride, excerpt=False)
        _, after = _after(draw, rows)
        norm = np.exp(0.3 * draw.standard_normal(rows)) * np.linspace(3.0, 1.0, rows)
        jump = np.where(after > 0, draw.uniform(60.0, 500.0), 1.0)
        yield ShortLog(
            "gradient norm x100", _window(draw, level, stride, excerpt=False, gradient_norm=norm * jump), True
        )
        yield ShortLog("gradient norm", _window(draw, level, stride, excerpt=False, gradient_norm=norm), False)
        broken = _window(draw, np.where(after > 0, np.nan, level), stride, excerpt=False)
        yield ShortLog("NaN rows", broken, True)
        if rows >= 20:
            yield _cycles(draw, level, stride)
            yield _stages(draw, level, stride)
        healthy = _window(draw, level, stride, excerpt=False)
        gained = 0.9 - 0.8 * np.exp(-np.arange(rows) / (0.2 * rows)) + 0.02 * draw.standard_normal(rows)
        yield _evaluated("accuracy", healthy, "val_accuracy", gained, faulty=False)
        fallen = np.where(after > 0, 0.1 + 0.01 * draw.standard_normal(rows), gained)
        yield _evaluated("accuracy collapses", healthy, "val_accuracy", fallen, faulty=True)
        gap = level * (1.05 + 0.02 * draw.standard_normal(rows))
        yield _evaluated("evaluation follows", healthy, "val_loss", gap, faulty=False)
        rise = gap + 0.8 * (level[0] - level.min()) * after / after.max()
        yield _evaluated("overfitting", healthy, "val_loss", rise, faulty=True)


def _cycles(draw: Draw, level: Values, stride: int) -> ShortLog:
    """A triangular rate: the loss gives back up to a quarter of its progress at each top, less and less."""
    phase = np.abs((np.arange(len(level)) * draw.integers(3, 6) / len(level)) % 1.0 * 2.0 - 1.0)
    high = level + draw.uniform(0.05, 0.25) * (level[0] - level) * (1.0 - phase)
    rate = 1e-4 + 9e-4 * (1.0 - phase)
    return ShortLog("cyclical rate", _window(draw, high, stride, excerpt=False, learning_rate=rate), False)


def _stages(draw: Draw, level: Values, stride: int) -> ShortLog:
    """A curriculum: harder data in two steps, with a column that says so."""
    stage = np.minimum(np.arange(len(level)) * 3 // len(level), 2).astype(np.float64)
    harder = level * np.array([1.0, 2.0, 3.0])[stage.astype(np.int64)]
    window = _window(draw, harder, stride, excerpt=False)
    metrics = {"stage": Series(window.steps, stage)}
    return ShortLog("curriculum", replace(window, metrics=metrics), False)


def _evaluated(name: str, window: Window, column: str, values: Values, *, faulty: bool) -> ShortLog:
    return ShortLog(name, replace(window, metrics={column: Series(window.steps, values)}), faulty)


# Rules of practice.


def _last_over_lowest(window: Window) -> bool:
    loss = window.series("loss").values
    return bool(loss[-1] > 1.5 * np.nanmin(loss)) or bool(np.isnan(loss[-1]))


def _z_of_three(window: Window) -> bool:
    """A row three standard deviations above the mean of all rows before it, from the fifth on."""
    loss = window.series("loss").values
    return any(
        not loss[row] <= loss[:row].mean() + 3.0 * loss[:row].std(ddof=1)
        for row in range(min(4, len(loss) - 1), len(loss))
    )


def _above_start(window: Window) -> bool:
    loss = window.series("loss").values
    return not loss[-1] <= loss[0]


PRACTICE: Mapping[str, Callable[[Window], bool]] = {
    "last > 1.5 x lowest": _last_over_lowest,
    "z-score above 3": _z_of_three,
    "last above first": _above_start,
}
