"""Rows that reading them changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class OverwrittenRows(SourceRule):
    """Reading a row of the data set changes the stored row, so later epochs train on other data.

    Means:
        The source of a data set takes a stored row without a copy and changes it in place. The first epoch looks as
        it should; in each later one the changes add up, until rows are masked, faded or saturated. Indexing a tensor,
        an array or a list gives the stored object itself.

    Causes:
        - `spec = self.specs[i]; spec[a:b] = 0`
        - `row = self.rows[i]; row.append(end)`
        - `image.sub_(mean)`, or `-=`, on a view of the stored images

    Next:
        1. Copy the row first: `self.rows[i].clone()`, `.copy()` of an array, `list(...)` of a list.
        2. Read one row twice with the same seed, and compare.
    """

    kind: ClassVar[str] = "overwritten-rows"
    says: ClassVar[str] = "changes a stored row in place while it is read: later epochs get other data"
