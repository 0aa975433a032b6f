"""How the labels are spread, and what a guess that knows only that costs."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, ClassVar, final

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Judgement, Part
from steadytrain.logs.numerals import counted

CLASSES_MAX = 100_000
MAJORITY_MAX = 0.9
RARE_ROWS_MAX = 2
ROWS_MIN = 20


@final
class LabelBalance(DataCheck):
    """There are several classes, and none has nearly all rows.

    Means:
        The entropy of the labels is the loss of the best guess that ignores the input: a classifier whose loss stays
        there has learned nothing from its inputs. If nearly all rows have one class, that loss is small from the start,
        and accuracy means little.

    Next:
        Compare the loss with that of a guess, which is named. With unequal classes, use a metric for each class.
    """

    reads: ClassVar[tuple[str, ...]] = ("classes",)

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._counts: Counter[Any] = Counter()
        self._missing = 0
        self._beyond = 0
        self._numbers_only = True

    def look(self, part: Part) -> None:
        assert part.classes is not None
        for value in part.classes:
            if value is None:
                self._missing += 1
            elif value in self._counts or len(self._counts) < CLASSES_MAX:
                self._counts[value] += 1
                self._numbers_only &= isinstance(value, float)
            else:
                self._beyond += 1

    def judge(self) -> Judgement:
        rows = sum(self._counts.values()) + self._beyond
        if rows < ROWS_MIN:
            return Judgement("not-run", f"labels of {rows} rows; at least {ROWS_MIN} are judged")
        if self._beyond or (len(self._counts) > 0.5 * rows) or self._numbers_only:
            return Judgement("not-run", f"{len(self._counts):,} different values in {rows:,} rows: no classes")
        shares = [count / rows for count in self._counts.values()]
        entropy = -sum(share * math.log(share) for share in shares)
        label, most = self._counts.most_common(1)[0]
        rare = sum(count <= RARE_ROWS_MAX for count in self._counts.values())
        numbers = {
            "rows": float(rows),
            "classes": float(len(shares)),
            "baseline_loss": entropy,
            "largest_share": most / rows,
            "missing": float(self._missing),
            "rare_classes": float(rare),
        }
        if len(shares) == 1:
            return Judgement("fail", f"all {rows:,} rows have the label {label!r}", numbers)
        told = f"{len(shares)} classes, the largest {label!r} with {most / rows:.1%}; a guess costs {entropy:.4g} nats"
        if self._missing:
            return Judgement("warn", f"{counted(self._missing, 'row')} without a label; {told}", numbers)
        return Judgement("warn" if most / rows > MAJORITY_MAX else "pass", told, numbers)
