"""Numeric columns that are constant, or far larger than the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Judgement, Part
from steadytrain.core.model import FloatArray

ROWS_MIN = 50
LARGE = 1000.0
"""A typical size that no usual learning rate and initialisation suits."""

TIMES_MAX = 1000.0
"""Ratio of scales from which on the model learns the large columns long before the small ones."""

OFFSET_MAX = 100.0
"""Distance of the mean from zero in deviations. Beyond it the variation is lost in the offset."""

SHOWN_MAX = 5


@final
class FeatureScale(DataCheck):
    """Numeric columns vary and have similar scales.

    Means:
        A constant column carries no information. A column whose values are a thousand times those of another, or far
        from zero, dominates the gradient: training is unstable at the rate that the others need, and slow at the rate
        that it needs.

    Next:
        Subtract the mean and divide by the deviation, both from the training rows. Take logarithms of counts and sums.
        Drop constant columns.
    """

    reads: ClassVar[tuple[str, ...]] = ("features",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._columns: dict[str, _Moments] = {}

    def look(self, part: Part) -> None:
        for name, numbers in part.features.items():
            values = numbers.values[np.isfinite(numbers.values)]
            self._columns.setdefault(name, _Moments()).add(values)

    def judge(self) -> Judgement:
        columns = {name: moments for name, moments in self._columns.items() if moments.count >= ROWS_MIN}
        if not columns:
            return Judgement("not-run", f"fewer than {ROWS_MIN} numbers in each column")
        constant = [name for name, moments in columns.items() if moments.low == moments.high]
        varying = {name: moments for name, moments in columns.items() if name not in constant}
        sizes = {name: moments.size for name, moments in varying.items()}
        middle = float(np.median(list(sizes.values()))) if sizes else 0.0
        large = [name for name, size in sizes.items() if size > LARGE or (middle > 0.0 and size > TIMES_MAX * middle)]
        offset = [
            name
            for name, moments in varying.items()
            if name not in large and abs(moments.mean) > OFFSET_MAX * moments.deviation
        ]
        numbers = {
            "columns": float(len(columns)),
            "constant": float(len(constant)),
            "large": float(len(large)),
            "far_from_zero": float(len(offset)),
            "largest_size": max(sizes.values(), default=0.0),
            "median_size": middle,
        }
        told = []
        if constant:
            told.append(f"constant: {_names(constant)}")
        if large:
            told.append("out of scale: " + ", ".join(f"{name} (about {sizes[name]:.3g})" for name in large[:SHOWN_MAX]))
        if offset:
            told.append(f"far from zero for how little they vary: {_names(offset)}")
        if told:
            return Judgement("warn", "; ".join(told), numbers)
        return Judgement("pass", f"{len(columns)} columns vary, of sizes around {middle:.3g}", numbers)


def _names(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_MAX]) + (f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else "")


@dataclass
class _Moments:
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, values: FloatArray) -> None:
        """Merge the moments of ``values`` (finite) into these (Chan, Golub and LeVeque)."""
        if not len(values):
            return
        count, mean = len(values), float(values.mean())
        squares = float(((values - mean) ** 2).sum())
        delta, total = mean - self.mean, self.count + count
        self.squares += squares + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count = total
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.squares / max(self.count, 1)))

    @property
    def size(self) -> float:
        """Root of the mean square."""
        return float(np.hypot(self.mean, self.deviation))
