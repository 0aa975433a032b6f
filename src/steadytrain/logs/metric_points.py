"""Convert metrics with their own steps (TensorBoard, MLflow) to rows of a log."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from steadytrain.core.model import FloatArray, IntArray
from steadytrain.logs.column_names import role_of
from steadytrain.logs.log_rows import COLUMNS_MAX, ROWS_MAX, Column, Rows

SHARED_STEPS_MIN = 0.5
"""A signal that shares less than this part of its steps with the loss counts something else (epochs)."""

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
        if len(self.steps) >= 2 * ROWS_MAX:  # bounded: only the newest half is kept
            for held in (self.steps, self.values, self.times):
                del held[:ROWS_MAX]


def rows_of(metrics: Mapping[str, Points]) -> Rows:
    """One row for all points of a step, with columns ``step`` and ``time``.

    A metric whose steps go back starts a new pass, whose rows follow those of the previous pass. Clocks do not decide
    this: points of one step are written at different times, and MLflow counts whole milliseconds.
    """
    notes: list[str] = []
    if len(metrics) > COLUMNS_MAX:
        kept = sorted(metrics, key=lambda name: role_of(name).what == "other")[:COLUMNS_MAX]
        notes.append(f"{len(metrics):,} metrics; {COLUMNS_MAX} of them were read.")
        metrics = {name: metrics[name] for name in kept}
    steps_of = {name: np.array(points.steps, np.int64) for name, points in metrics.items() if len(points.steps)}
    for name in _of_other_steps(steps_of):
        del steps_of[name]
        notes.append(f"{name!r} counts different steps than the loss and was left out.")
    if not steps_of:
        return Rows(0, {}, notes=tuple(notes))
    steps = np.concatenate(list(steps_of.values()))
    passes = np.concatenate([np.cumsum(np.diff(own, prepend=own[:1]) < 0) for own in steps_of.values()])
    order = np.lexsort((steps, passes))
    begins = np.append(True, (np.diff(steps[order]) != 0) | (np.diff(passes[order]) != 0))
    row = np.zeros(len(order), np.int64)
    row[order] = np.cumsum(begins) - 1
    columns: dict[str, Column] = {}
    time = np.zeros(int(begins.sum()))
    start = 0
    for name, own in steps_of.items():
        rows = row[start : start + len(own)]
        columns[name] = _column(rows, np.array(metrics[name].values, np.float64))
        time[rows] = np.array(metrics[name].times, np.float64)
        start += len(own)
    every = np.arange(len(time))
    columns[STEP] = Column(every, steps[order][begins].astype(np.float64))
    columns[TIME] = Column(every, time)
    return Rows(len(time), columns, notes=tuple(notes))


def _column(rows: IntArray, values: FloatArray) -> Column:
    """A column. Of several values in a row a non-finite one counts, else the last. ``rows`` ascend."""
    order = np.lexsort((~np.isfinite(values), rows))
    last = np.append(np.diff(rows) != 0, True)
    return Column(rows[last], values[order][last])


def _of_other_steps(steps_of: Mapping[str, IntArray]) -> list[str]:
    """Signals whose steps differ from those of the fullest loss. Evaluations may have any steps."""
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
