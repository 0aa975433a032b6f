"""Rows sorted by what they are."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Judgement, OfLoader, Part

ROWS_MIN = 100
KINDS_MAX = 10_000
CHANGES_SHARE_MAX = 0.5
"""Rows are sorted, or come in runs, if neighbours differ less than half as often as in a shuffled order."""

CERTAIN = 6.0
"""Standard errors from chance. At this distance, a check of thousands of data sets has no false alarm."""

LENGTH_CORRELATION_MIN = 0.5
"""Correlation of neighbouring lengths. Shuffled rows have none."""


@final
class RowOrder(DataCheck):
    """Rows are not sorted by label, source or length.

    Means:
        A loader that does not shuffle, or shuffles in a small buffer, gives batches of one kind after another: the loss
        moves in steps, and the model forgets the first kind while it learns the last.

    Next:
        Shuffle once when the data is written. With a loader that shuffles all rows this is harmless; a shuffle buffer
        must be longer than the longest run.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    of_loader: ClassVar[OfLoader] = "order"

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._kinds = {"label": _Changes(), "source": _Changes()}
        self._lengths = _Neighbours()

    def look(self, part: Part) -> None:
        for what, values in (("label", part.classes), ("source", part.sources)):
            if values is not None:
                for value in values:
                    self._kinds[what].add(value)
        if part.tokens is not None:
            self._lengths.add(np.log1p(part.tokens.lengths.astype(np.float64)))
        elif part.texts is not None:
            self._lengths.add(np.log1p(np.array([len(text) for text in part.texts], np.float64)))

    def judge(self) -> Judgement:
        numbers: dict[str, float] = {}
        sorted_by = []
        for what, changes in self._kinds.items():
            if changes.rows < ROWS_MIN or len(changes.counts) < 2:
                continue
            share, certain = changes.against_shuffled()
            numbers |= {f"{what}_changes_share": share, f"{what}_longest_run": float(changes.longest)}
            if share < CHANGES_SHARE_MAX and certain > CERTAIN:
                sorted_by.append(f"{what} (runs of up to {changes.longest:,} rows)")
        if self._lengths.count >= ROWS_MIN:
            correlation = self._lengths.correlation()
            numbers["length_correlation"] = correlation
            if correlation > LENGTH_CORRELATION_MIN:
                sorted_by.append(f"length (neighbours' lengths correlate by {correlation:.2f})")
        if not numbers:
            return Judgement("not-run", f"fewer than {ROWS_MIN} rows, or nothing to sort them by")
        if sorted_by:
            return Judgement("warn", f"rows come in order of {' and '.join(sorted_by)}", numbers)
        return Judgement("pass", "rows come in no order of label, source or length", numbers)


class _Changes:
    """How often a value differs from the one before it."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()
        self.rows = self.changes = self.longest = 0
        self._last: Any = None
        self._run = 0

    def add(self, value: Any) -> None:
        if self.rows and value != self._last:
            self.changes += 1
            self._run = 0
        self._run += 1
        self.longest = max(self.longest, self._run)
        self._last = value
        self.rows += 1
        if value in self.counts or len(self.counts) < KINDS_MAX:
            self.counts[value] += 1

    def against_shuffled(self) -> tuple[float, float]:
        """Changes as a share of those in a shuffled order, and the deficit in standard errors."""
        equal = sum((count / self.rows) ** 2 for count in self.counts.values())
        expected = (self.rows - 1) * (1.0 - equal)
        error = math.sqrt(max(expected * equal, 1.0))
        return self.changes / max(expected, 1.0), (expected - self.changes) / error


class _Neighbours:
    """Correlation of successive numbers, from running sums."""

    def __init__(self) -> None:
        self.count = 0
        self._sums = np.zeros(3)
        self._last: float | None = None

    def add(self, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
        if not len(values):
            return
        chained = values if self._last is None else np.concatenate([[self._last], values])
        self._sums += (values.sum(), (values**2).sum(), (chained[1:] * chained[:-1]).sum())
        self._last = float(values[-1])
        self.count += len(values)

    def correlation(self) -> float:
        mean = self._sums[0] / self.count
        variance = self._sums[1] / self.count - mean**2
        if variance < 1e-9:
            return 0.0
        return float((self._sums[2] / (self.count - 1) - mean**2) / variance)
