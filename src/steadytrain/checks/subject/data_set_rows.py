"""Rows of the script's data set, a few of them, by place: never by running its loader, which may draw and wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadytrain.checks.data.sources import fields_of
from steadytrain.checks.subject.model_check import Subject

SECONDS_SHARE = 0.5
"""Of the check's time: a data set that reads images from a slow disk gives fewer rows."""


def is_indexed(dataset: Any) -> bool:
    """Whether rows can be asked for by place, which changes nothing in most data sets."""
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
    """The rows at these places, until half of the check's time is over; one that raises ends it."""
    begin = subject.time_left()
    rows: list[Mapping[str, Any]] = []
    for place in places:
        if subject.time_left() < begin * (1.0 - SECONDS_SHARE):
            break
        try:
            rows.append(fields_of(subject.dataset[place]))
        except Exception:  # the data set's own code; the script meets the same error by itself
            break
    return rows
