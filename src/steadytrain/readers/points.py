"""Metrics that are logged one by one, each with its own steps (TensorBoard, MLflow), as rows of a log."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from steadytrain.readers.names import role_of
from steadytrain.readers.rows import COLUMNS_MAX, ROWS_MAX, Column, Rows

SHARED_STEPS_MIN = 0.5
"""A signal that has less than this share of its steps in common with the loss counts something else (epochs)."""

STEP, TIME = "step", "time"


@dataclass
class Points:
    """The points of one metric, in the order in which they were written."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float, time: float) -> None:
        self.steps.append(step)
        self.values.append(value)
        self.times.append(time)
        if len(self.steps) >= 2 * ROWS_MAX:  # a bound: of more points the newest half is kept
            for held in (self.steps, self.values, self.times):
                del held[:ROWS_MAX]


def rows_of(metrics: Mapping[str, Points]) -> Rows:
    """One row for all points of a step that were written one after the other, with columns ``step`` and ``time``."""
    notes: list[str] = []
    if len(metrics) > COLUMNS_MAX:
        kept = sorted(metrics, key=lambda name: role_of(name).what == "other")[:COLUMNS_MAX]
        notes.append(f"{len(metrics):,} metrics; {COLUMNS_MAX} of them were read.")
        metrics = {name: metrics[name] for name in kept}
    steps_of = {name: np.array(points.steps, np.int64) for name, points in metrics.items() if len(points.steps)}
    for name in _of_other_steps(steps_of):
        del steps_of[name]
        notes.append(f"{name!r} counts other steps than the loss and was left out.")
    if not steps_of:
        return Rows(0, {}, notes=tuple(notes))
    names = list(steps_of)
    of = np.repeat(np.arange(len(names)), [len(steps_of[name]) for name in names])
    steps = np.concatenate([steps_of[name] for name in names])
    values = np.concatenate([np.array(metrics[name].values, np.float64) for name in names])
    times = np.concatenate([np.array(metrics[name].times, np.float64) for name in names])
    order = np.argsort(times, kind="stable")
    of, steps, values, times = of[order], steps[order], values[order], times[order]
    row = np.cumsum(np.append(False, np.diff(steps) != 0))
    columns = {name: _column(row[of == number], values[of == number]) for number, name in enumerate(names)}
    columns[STEP] = _column(row, steps.astype(np.float64))
    columns[TIME] = _column(row, times)
    return Rows(int(row[-1]) + 1, columns, notes=tuple(notes))


def _column(
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> Column:
    last = np.append(np.diff(rows) != 0, True) if len(rows) else np.zeros(0, np.bool_)
    return Column(rows[last], values[last])


def _of_other_steps(steps_of: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]) -> list[str]:
    """Signals whose steps are not those of the fullest loss. Evaluations may have any."""
    losses = [name for name in steps_of if role_of(name).what == "loss"]
    if not losses:
        return []
    loss = max(losses, key=lambda name: len(steps_of[name]))
    return [
        name
        for name, steps in steps_of.items()
        if role_of(name).what not in ("loss", "evaluation", "other", "epoch", "time", "planned")
        and np.isin(steps, steps_of[loss]).mean() < SHARED_STEPS_MIN
        and np.isin(steps_of[loss], steps).mean() < SHARED_STEPS_MIN
    ]
