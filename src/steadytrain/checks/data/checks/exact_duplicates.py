"""Rows that are there more than once."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, OfLoader, Part, graded
from steadytrain.checks.data.seen_rows import Seen, digests_of, row_contents

WARN_SHARE, FAIL_SHARE = 0.01, 0.3
"""Chosen: all data has a few repeats (boilerplate, short answers); at a third of the rows it was merged twice."""


@final
class ExactDuplicates(DataCheck):
    """Rows are not repeated.

    Means:
        The model memorizes rows that equal an earlier one: their loss falls below what the rest allows, and where they
        come in bulk (data repeated after a resume, shards read twice) the loss falls and jumps back. The check compares
        64-bit digests in a table of fixed size; the numbers show how many rows did not fit into it.

    Next:
        Remove duplicates before the split into training and test. If whole shards repeat, check how files are listed.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    of_loader: ClassVar[OfLoader] = "oddity"

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._seen = Seen()
        self._rows = self._repeated = 0
        self._examples = Examples()

    def look(self, part: Part) -> None:
        contents = row_contents(part)
        if not contents:
            return
        # All empty rows are equal; another check covers them.
        places = np.array([place for place, content in enumerate(contents) if content], np.int64)
        if not len(places):
            return
        numbers = np.array([part.rows[place].number for place in places], np.int64)
        first = self._seen.first_rows(digests_of([contents[place] for place in places]), numbers)
        self._rows += len(places)
        repeated = np.flatnonzero(first >= 0)
        self._repeated += len(repeated)
        for place in repeated[: 5 - len(self._examples.kept)]:
            self._examples.add(part, [int(places[place])], f"equal to row {first[place]}")

    def judge(self) -> Judgement:
        if not self._rows:
            return Judgement("not-run", "no row could be read")
        share = self._repeated / self._rows
        pairs = self._rows**2 / 2.0**65
        numbers = {
            "rows": float(self._rows),
            "repeated": float(self._repeated),
            "share": share,
            "not_compared": float(self._seen.without_place),
            "false_pairs_expected": pairs,
        }
        if not self._repeated:
            return Judgement("pass", f"no two of {self._rows:,} rows are equal", numbers)
        status = graded(share, warn=WARN_SHARE, fail=FAIL_SHARE)
        message = f"{self._repeated:,} of {self._rows:,} rows are equal to an earlier one ({share:.2%})"
        return Judgement(status, message, numbers, self._examples.kept)
