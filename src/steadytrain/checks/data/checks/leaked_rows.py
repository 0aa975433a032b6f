"""Rows of a test split among those that are trained on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

import numpy as np

from steadytrain.checks.data.data_check import Circumstances, DataCheck, Examples, Judgement, Part
from steadytrain.checks.data.seen_rows import Seen, digests_of, row_contents

FAIL_SHARE = 0.001
"""Share of the split. A single row by chance (a short text) warns; one in a thousand means a wrong split."""


@final
class LeakedRows(DataCheck):
    """No row of the --against split is also in this data.

    Means:
        The evaluation contains training rows: the validation loss is too good, and choices based on it are wrong. The
        check compares text in lower case with normalised white space, or tokens, or all fields.

    Next:
        Remove these rows from the training data, not from the test set. Remove duplicates before splitting.
    """

    compares: ClassVar[bool] = True

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self._split: Seen | None = None
        self._name = ""
        self._split_rows = self._rows = 0
        self._leaked: set[int] = set()
        self._hits = 0
        self._examples = Examples()

    def compare_with(self, name: str, parts: Iterable[Part]) -> None:
        """Store digests of the split's rows."""
        self._split, self._name = Seen(), name
        for part in parts:
            contents = _contents(part)
            if contents:
                numbers = np.array([row.number for row in part.rows], np.int64)
                self._split.first_rows(digests_of(contents), numbers)
                self._split_rows += len(contents)

    def cannot(self) -> str | None:
        return "no split to compare with (--against)" if self._split is None else None

    def look(self, part: Part) -> None:
        assert self._split is not None
        contents = _contents(part)
        self._rows += len(contents)
        if not contents:
            return
        there = self._split.lookup(digests_of(contents))
        hits = np.flatnonzero(there >= 0)
        hits = np.array([place for place in hits.tolist() if contents[place]], np.int64)
        self._hits += len(hits)
        self._leaked.update(there[hits].tolist())
        for place in hits[: 5 - len(self._examples.kept)]:
            self._examples.add(part, [int(place)], f"row {there[place]} of {self._name}")

    def judge(self) -> Judgement:
        share = len(self._leaked) / max(self._split_rows, 1)
        numbers = {
            "rows": float(self._rows),
            "split_rows": float(self._split_rows),
            "hits": float(self._hits),
            "leaked": float(len(self._leaked)),
            "share": share,
        }
        if not self._leaked:
            return Judgement("pass", f"none of the {self._split_rows:,} rows of {self._name} is here", numbers)
        message = f"{len(self._leaked):,} of {self._split_rows:,} rows of {self._name} are here too ({share:.2%})"
        return Judgement("fail" if share >= FAIL_SHARE else "warn", message, numbers, self._examples.kept)


def _contents(part: Part) -> list[bytes]:
    if part.texts is not None:
        return [" ".join(text.lower().split()).encode("utf-8", "surrogatepass") for text in part.texts]
    return row_contents(part)
