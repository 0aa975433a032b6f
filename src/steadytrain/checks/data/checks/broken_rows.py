"""Rows that cannot be read."""

from __future__ import annotations

from typing import ClassVar, final

from steadytrain.checks.data.data_check import EXAMPLES_MAX, Circumstances, DataCheck, Example, Judgement, Part, excerpt


@final
class BrokenRows(DataCheck):
    """Every row can be read.

    Means:
        A row is no JSON object, does not fit the header, or its dataset raised an error for it. A loader stops at such
        a row in the middle of an epoch, or silently skips it.

    Next:
        Check the named lines. If the last line is cut off, the file is incomplete.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._broken = 0
        self._examples: list[Example] = []

    def look(self, part: Part) -> None:
        self._rows += len(part.every)
        if len(part.rows) == len(part.every):
            return
        broken = [row for row in part.every if row.fields is None]
        self._broken += len(broken)
        room = EXAMPLES_MAX - len(self._examples)
        self._examples += [Example(row.number, row.place, excerpt(row.broken), "not read") for row in broken[:room]]

    def judge(self) -> Judgement:
        numbers = {"rows": float(self._rows), "broken": float(self._broken)}
        if self._broken:
            return Judgement("fail", f"{self._broken:,} of {self._rows:,} rows cannot be read", numbers, self._examples)
        return Judgement("pass", f"all {self._rows:,} rows can be read", numbers)
