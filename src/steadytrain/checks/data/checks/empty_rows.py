"""Rows with nothing in them."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, OfLoader, Part, graded

FAIL_SHARE = 0.01


@final
class EmptyRows(DataCheck):
    """Every row has text or tokens.

    Means:
        A row with only white space, or without tokens, teaches nothing. Alone in a batch it gives a loss over no
        targets, which is NaN, and attention over no keys.

    Next:
        Drop them when the data is made. If a field was renamed, name the right one (--text).
    """

    reads: ClassVar[tuple[str, ...]] = ()
    of_loader: ClassVar[OfLoader] = "fault"

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._rows = self._empty = 0
        self._looked = False
        self._examples = Examples()

    def look(self, part: Part) -> None:
        if part.texts is not None:
            empty = np.array([not text or text.isspace() for text in part.texts], bool)
        elif part.tokens is not None:
            empty = part.tokens.lengths == 0
        else:
            return
        self._looked = True
        self._rows += len(empty)
        self._empty += int(empty.sum())
        if empty.any():
            self._examples.add(part, np.flatnonzero(empty))

    def judge(self) -> Judgement:
        if not self._looked:
            return Judgement("not-run", "no field with text or tokens")
        share = self._empty / max(self._rows, 1)
        numbers = {"rows": float(self._rows), "empty": float(self._empty), "share": share}
        if not self._empty:
            return Judgement("pass", f"none of {self._rows:,} rows is empty", numbers)
        status = graded(share, warn=0.0, fail=FAIL_SHARE)
        return Judgement(
            status, f"{self._empty:,} of {self._rows:,} rows are empty ({share:.2%})", numbers, self._examples.kept
        )
