"""Rows of the table ``script`` by what they measure: what a look at the script found, and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Window


@dataclass(frozen=True)
class ScriptRow:
    """One measure at one place, over the looks that have it."""

    place: str
    steps: IntArray
    values: FloatArray

    @property
    def last(self) -> float:
        """The newest value."""
        return float(self.values[-1])


def script_rows(window: Window, measure: str) -> list[ScriptRow]:
    """The rows of ``measure`` that have a value, in the order in which they were first seen."""
    table = window.tables.get("script")
    if table is None or "value" not in table.columns:
        return []
    found = []
    for row in table.rows:
        name, _, place = row.partition(":")
        if name == measure:
            series = table.series(row, "value")
            if len(series):
                found.append(ScriptRow(place, series.steps, series.values))
    return found


def last_value(window: Window, measure: str, place: str) -> float | None:
    """The newest value of ``measure`` at ``place``; None without one."""
    return next((row.last for row in script_rows(window, measure) if row.place == place), None)


def looks(window: Window) -> IntArray:
    """The steps that the script was looked at in."""
    table = window.tables.get("script")
    return table.steps if table is not None else np.zeros(0, np.int64)
