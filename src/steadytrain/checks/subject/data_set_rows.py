"""A few rows of the script's data set, by index. Never runs its loader, which may draw random numbers or block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadytrain.checks.data.sources import fields_of
from steadytrain.checks.subject.model_check import Subject

SECONDS_SHARE = 0.5
"""Share of the check's time. A data set that reads images from a slow disk yields fewer rows."""


def is_indexed(dataset: Any) -> bool:
    """Whether rows can be read by index, which changes nothing in most data sets."""
    if dataset is None or isinstance(dataset, Mapping) or not hasattr(dataset, "__getitem__"):
        return False
    try:
        return len(dataset) > 0
    except Exception:  # __len__ may raise anything
        return False


def sampled_rows(subject: Subject, count: int) -> list[Mapping[str, Any]]:
    """Up to ``count`` rows, evenly spread over the data set, as named fields."""
    return rows_at(subject, spread_places(subject, count))


def first_rows(subject: Subject, count: int) -> list[Mapping[str, Any]]:
    """Up to ``count`` rows from the beginning, in the data set's order."""
    if not is_indexed(subject.dataset):
        return []
    return rows_at(subject, list(range(min(count, len(subject.dataset)))))


def spread_places(subject: Subject, count: int) -> list[int]:
    if not is_indexed(subject.dataset):
        return []
    length = len(subject.dataset)
    count = min(count, length)
    return sorted({place * (length - 1) // max(count - 1, 1) for place in range(count)})


def rows_at(subject: Subject, places: list[int]) -> list[Mapping[str, Any]]:
    """The rows at these indices, until half of the check's time is used or a row raises."""
    begin = subject.time_left()
    rows: list[Mapping[str, Any]] = []
    for place in places:
        if subject.time_left() < begin * (1.0 - SECONDS_SHARE):
            break
        try:
            rows.append(fields_of(subject.dataset[place]))
        except Exception:  # the data set's own code; the script meets the same error itself
            break
    return rows
