"""Numbers that are NaN or infinite."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, OfLoader, Part


@final
class NonfiniteFeatures(DataCheck):
    """Every number in the data is finite.

    Means:
        A NaN or an infinity in an input makes the loss of its batch NaN, and the gradient of every weight with it. One
        row in a million is enough.

    Next:
        Find the origin of these values: a logarithm of zero, a division by an empty count, a missing value read as NaN.
        Replace or drop the rows.
    """

    reads: ClassVar[tuple[str, ...]] = ("features",)
    of_loader: ClassVar[OfLoader] = "fault"

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._values = self._bad = self._rows = 0
        self._columns: Counter[str] = Counter()
        self._examples = Examples()

    def look(self, part: Part) -> None:
        for name, numbers in part.features.items():
            bad = ~np.isfinite(numbers.values)
            self._values += len(bad)
            if bad.any():
                self._bad += int(bad.sum())
                rows = np.unique(numbers.owners[bad])
                self._rows += len(rows)
                self._columns[name] += len(rows)
                self._examples.add(part, rows, f"{name} is {numbers.values[bad][0]}")

    def judge(self) -> Judgement:
        numbers = {"numbers": float(self._values), "not_finite": float(self._bad), "rows": float(self._rows)}
        if not self._bad:
            return Judgement("pass", f"all {self._values:,} numbers are finite", numbers)
        where = ", ".join(f"{name} ({rows:,} rows)" for name, rows in self._columns.most_common(5))
        return Judgement("fail", f"{self._bad:,} numbers are NaN or infinite: {where}", numbers, self._examples.kept)
