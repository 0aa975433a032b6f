"""Rows that reading them changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import SourceRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class OverwrittenRows(SourceRule):
    """Reading a row of the data set changes the stored row, so later epochs train on other data.

    Means:
        The source of a data set takes a stored row without a copy and changes it in place. The first epoch looks as
        it should; in each later one the changes add up, until rows are masked, faded or saturated. Indexing a tensor,
        an array or a list gives the stored object itself. Where the source does not show it, some stored rows are
        compared before and after a loader without workers reads them: they change at their second read and later ones,
        and move further from where they were each time, or are scaled again. A cache that the first read fills, and a
        store that keeps the newest view of a row, are no such change.

    Causes:
        - `spec = self.specs[i]; spec[a:b] = 0`
        - `row = self.rows[i]; row.append(end)`
        - a transform or a collate function that writes into its argument
        - `image.sub_(mean)`, or `-=`, on a view of the stored images

    Next:
        1. Copy the row first: `self.rows[i].clone()`, `.copy()` of an array, `list(...)` of a list.
        2. Read one row twice with the same seed, and compare.
    """

    reads_min: int = threshold(8, "reads that changed a stored row, of at most 128 reads of 16 rows")

    kind: ClassVar[str] = "overwritten-rows"
    says: ClassVar[str] = "changes a stored row in place while it is read: later epochs get other data"

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return super().check(window) or tuple(
            self.warning(
                window,
                row,
                f"reading a row changes it in {row.place}: {row.last:.0f} reads did, and the changes pile up from one "
                "epoch to the next; an augmentation or a scaling works in place on the stored row, not on a copy",
                reads=row.last,
            )
            for row in script_rows(window, "overwritten-data")[:1]
            if row.last >= self.reads_min
        )
