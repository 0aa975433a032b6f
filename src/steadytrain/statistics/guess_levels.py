"""What a guess costs that ignores the input, and whether a loss stands there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadytrain.core.model import FloatArray, Series, Window
from steadytrain.statistics.script_rows import script_rows

TREND_SCALES = 2.0
"""A slope this many standard errors below zero is a fall."""

BALANCED_SHARE = 0.99
"""Labels whose entropy is above this share of a uniform guess count as balanced: few labels look less so by chance."""

RISING = 1.01
RISING_STEPS = 16


@dataclass(frozen=True)
class Guess:
    """The loss of a guess among ``classes`` at the line ``place``; ``uniform`` if it does not use their frequencies.

    ``classes`` is 0 for a squared error, whose guess is the mean of the targets.
    """

    place: str
    classes: int
    level: float
    uniform: bool


def guesses(window: Window) -> list[Guess]:
    """The guesses at the losses that a look could read: by the classes, and by labels of unequal frequencies."""
    found = []
    entropies = {row.place: row.last for row in script_rows(window, "label-entropy")}
    for row in script_rows(window, "classes"):
        found.append(Guess(row.place, int(row.last), math.log(row.last), uniform=True))
        if 0.0 < entropies.get(row.place, 0.0) < BALANCED_SHARE * math.log(row.last):
            found.append(Guess(row.place, int(row.last), entropies[row.place], uniform=False))
    return found


def mean_guesses(window: Window) -> list[Guess]:
    """What the mean of the targets costs at each squared error that a look could read."""
    return [Guess(row.place, 0, row.last, uniform=False) for row in script_rows(window, "target-variance")]


def level_of(values: FloatArray) -> tuple[float, float]:
    """The mean of a noisy stretch without its extremes, and its standard error."""
    low, high = np.quantile(values, [0.05, 0.95])
    kept = np.clip(values, low, high)
    return float(kept.mean()), float(kept.std() * math.sqrt(_inflation(kept) / len(kept)))


@dataclass(frozen=True)
class Line:
    """A straight line through a noisy stretch, without its extremes: its value at the end, slope a row, and error."""

    end: float
    slope: float
    error: float

    @property
    def falls(self) -> bool:
        """Whether it falls by more than the noise explains."""
        return self.slope < -TREND_SCALES * self.error

    def after(self, rows: int) -> float:
        """The value so many rows later, if it falls as fast as the noise allows."""
        return self.end + (self.slope - self.error) * rows


def line_through(values: FloatArray) -> Line:
    """Fit at least three values."""
    low, high = np.quantile(values, [0.05, 0.95])
    kept = np.clip(values, low, high)
    at = np.arange(len(kept)) - (len(kept) - 1) / 2.0
    slope = float(at @ kept / (at @ at))
    rest = kept - kept.mean() - slope * at
    error = math.sqrt(float(rest @ rest) / (len(kept) - 2) * _inflation(rest) / float(at @ at))
    return Line(float(kept.mean()) + slope * float(at[-1]), slope, error)


def steps_at_work(rate: Series, share: float) -> int | None:
    """Steps since the learning rate first reached ``share`` of its largest value; None while it still rises."""
    if not len(rate) or rate.values.max() <= 0.0:
        return None
    if len(rate) > RISING_STEPS and rate.values[-1] > RISING * rate.values[-1 - RISING_STEPS]:
        return None
    first = int(np.flatnonzero(rate.values >= share * rate.values.max())[0])
    return int(rate.steps[-1] - rate.steps[first]) + 1


def _inflation(values: FloatArray) -> float:
    """How much larger the variance of a mean is than that of independent values, by the autocorrelation of one step."""
    centred = values - values.mean()
    power = float(centred @ centred)
    near = min(0.9, max(0.0, float(centred[1:] @ centred[:-1]) / power)) if power > 0.0 else 0.0
    return (1.0 + near) / (1.0 - near)
