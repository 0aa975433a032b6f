"""How long rows are, and whether a few are far longer than all others."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Example, Judgement, Part
from steadytrain.checks.data.spread import Spread

TIMES_MAX = 16.0
LONG_MIN = 8192
ROWS_MIN = 100


@final
class LengthExplosion(DataCheck):
    """No row is many times longer than nearly all others.

    Means:
        A row sixteen times as long as 99 % of all rows sets the padding, time and memory of its batch: out of memory in
        step 30,000. Most often several documents were joined, or binary content was read as text.

    Next:
        Read the longest row. Cut or drop it, or batch rows of similar length.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._spread = Spread()
        self._unit = ""
        self._longest: Example | None = None

    def look(self, part: Part) -> None:
        if part.tokens is not None:
            lengths, self._unit = part.tokens.lengths, "tokens"
        elif part.texts is not None:
            lengths, self._unit = np.array([len(text) for text in part.texts], np.int64), "characters"
        else:
            return
        if len(lengths) and lengths.max() > self._spread.largest:
            place = int(lengths.argmax())
            self._longest = part.example(place, f"{lengths[place]:,} {self._unit}")
        self._spread.add(lengths)

    def judge(self) -> Judgement:
        spread = self._spread
        if not self._unit:
            return Judgement("not-run", "no field with text or tokens")
        if spread.count < ROWS_MIN:
            return Judgement("not-run", f"fewer than {ROWS_MIN} rows")
        most = spread.quantile(0.99)
        numbers = {
            "mean": spread.mean,
            "p50": spread.quantile(0.5),
            "p90": spread.quantile(0.9),
            "p99": most,
            "longest": spread.largest,
        }
        unit = self._unit
        told = (
            f"half of the rows have at most {numbers['p50']:,.0f} {unit}, 99 % at most {most:,.0f}; "
            f"the longest has {spread.largest:,.0f}"
        )
        long = spread.largest > LONG_MIN and spread.largest > TIMES_MAX * max(most, 1.0)
        examples = [self._longest] if long and self._longest is not None else []
        return Judgement("warn" if long else "pass", told, numbers, examples)
