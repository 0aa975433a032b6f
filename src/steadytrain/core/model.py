"""Measurements and symptoms. A window holds steps with their signals and tables; a symptom refers to a window.

Every type here is an inert, frozen value: no torch, no files, no clock. Types that are stored convert to plain JSON
(``to_json``) and back, because the two halves exchange data on disk only. Not here: what an incident stores
(``incident``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.json_values import JsonValue

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Severity = Literal["note", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("note", "warning", "critical")

FIRST_STREAM = "main"
"""The name of the steps of a process's first optimizer, whose tape is kept."""

SIGNALS: Mapping[str, str] = {
    "loss": "mean over the step's micro-batches (sum, where each is divided by a count of the step), before division "
    "by accumulation and loss scale; different losses of a step are added",
    "gradient_norm": "global L2 norm of the gradients before clipping (as applied where clipping was not seen; of an "
    "update by hand without `watch.update()`, at the end of its backward)",
    "gradient_norm_applied": "global L2 norm of the gradients that the optimizer was about to apply",
    "parameter_norm": "global L2 norm of the parameters before the update",
    "learning_rate": "learning rate of the optimizer's first parameter group",
    "samples": "rows of the step's micro-batches (first dimension of the first tensor input), summed over the calls of "
    "one module",
    "tokens": "elements of the step's two-dimensional integer inputs, summed likewise (absent when there are none)",
    "step_s": "wall-clock seconds since the end of the previous step, without those that steadytrain spent in between",
    "data_wait_s": "seconds of step_s that the training thread waited in data loaders, evaluation in between included",
    "loss_scale": "scale of the gradient scaler that steps this optimizer (absent without one)",
    "scaler_skips": "steps that the gradient scaler has skipped since the watch began (absent without one)",
    "clip_coefficient": "norm of the clipped gradients after over before clipping, 1 where it changed nothing (absent "
    "where no clipping was seen, or the step was skipped)",
    "clip_count": "steps since the watch began whose clip_coefficient was below 1 (absent until clipping was seen)",
    "overflow_share": "share of gradient elements that are NaN or Inf",
    "epoch": "passes over the training data so far, with its fraction (absent if not counted)",
    "underflow_share": "share of gradient elements that are zero or below the smallest normal number of their dtype "
    "(under a gradient scaler of float16, loss scale included); on a cadence, large tensors sampled",
}
"""The scalar signals of a step and what each means. A record may lack any of them."""

FACTS: Mapping[str, str] = {
    "baseline_loss": "loss of the best prediction that ignores the input (entropy of the label distribution), nats",
    "vocabulary": "size of the last dimension of the logits of a classification over tokens",
    "planned_steps": "optimizer steps that the run was planned to make",
    "optimizers_in_turn": "optimizers that take turns, each after a backward of its own, where there are several",
    "moving_targets": "1 where a copy of the model that follows it runs in most steps (a target network), 2 where the "
    "model trains on rows that it collected itself, 3 where its own outputs are the targets: they move with it",
    "loss_may_rise": "1 where the loss of a log measures no progress (generators, critics, policies), by its columns",
    "loss_scale_growth_interval": "steps between two attempts of the gradient scaler to double its scale",
}
"""Numbers about a run that detectors may use if they are known, and what each means."""

COPY_FOLLOWS, OWN_ROLLOUTS, OWN_OUTPUTS = 1.0, 2.0, 3.0
"""The values of the fact ``moving_targets``."""

GRADIENT_ABSENT = -1.0
"""Per-tensor gradient norm that marks a parameter without a gradient in the step."""

TABLES: Mapping[str, str] = {
    "gradients": "L2 norm of every gradient before clipping, a row a parameter, every step",
    "tensors": "weights, gradients, updates and optimizer moments, a row a parameter, on a cadence",
    "modules": "outputs of modules, a row a module, on a cadence",
    "histograms": "log2 histograms of magnitudes, rows `gradient:name`, `weight:name`, `activation:name`, on a cadence "
    "(`gradient+:name` and `weight+:name` count the positive elements of a sample, and the others as zero)",
    "machine": "host and accelerators, a row a device, on a cadence of wall-clock time",
    "script": "what the script does with model, loss and data, a row `measure:place`, in a few early steps and after "
    "a change",
    "replica": "digests of settings, inputs, optimizer state and parameters, a row each, of a run of several ranks, on "
    "a cadence (`replica_probe` of the smallest parameter, every step)",
    "ranks": "in what the ranks differ, a row `measure:rank`, written by the first rank",
}
"""The tables of a run. The modules that measure them define their columns."""


@dataclass(frozen=True)
class Reading:
    """One measurement of a table: ``values`` has shape ``(rows, columns)``, float32, NaN for a value that was not
    measured.
    """

    table: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: NDArray[np.float32]


@dataclass(frozen=True)
class Table:
    """The readings of one table: ``values`` has shape ``(steps, rows, columns)``, float32, for the steps that have one.

    A NaN was not measured, or its statistic is undefined. Count columns report NaN or Inf in a tensor. A row that a
    reading lacks is NaN there.
    """

    name: str
    steps: IntArray
    time: FloatArray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, first_step: int, last_step: int) -> Table:
        """The readings of these steps, both ends included."""
        here = (self.steps >= first_step) & (self.steps <= last_step)
        return replace(self, steps=self.steps[here], time=self.time[here], values=self.values[here])

    def series(self, row: str, column: str) -> Series:
        """The values of this cell, at the steps that measured it.

        Raises:
            ValueError: the table has no such row or column.
        """
        if row not in self.rows or column not in self.columns:
            raise ValueError(f"the table {self.name} has no cell {row!r}, {column!r}")
        values = self.values[:, self.rows.index(row), self.columns.index(column)].astype(np.float64)
        here = ~np.isnan(values)
        return Series(self.steps[here], values[here])


@dataclass(frozen=True)
class Series:
    """One signal at the steps that have it: ``values[i]`` belongs to optimizer step ``steps[i]``.

    A NaN or Inf in ``values`` was *measured*. Steps that did not log the signal are left out.
    """

    steps: IntArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, first_step: int, last_step: int) -> Series:
        """The values of these steps, both ends included."""
        here = (self.steps >= first_step) & (self.steps <= last_step)
        return Series(self.steps[here], self.values[here])


@dataclass(frozen=True)
class Cells:
    """One column of a table: ``values`` has shape ``(readings, rows)``, float64, NaN for a value that was not measured.

    Every reading has at least one value.
    """

    steps: IntArray
    rows: tuple[str, ...]
    values: FloatArray

    def __len__(self) -> int:
        return len(self.steps)

    def row(self, name: str) -> Series:
        """The values of one row, at the readings that have one."""
        values = self.values[:, self.rows.index(name)]
        here = ~np.isnan(values)
        return Series(self.steps[here], values[here])


@dataclass(frozen=True)
class Window:
    """Consecutive steps of one run, oldest first: the input of a detector.

    ``signals[name]`` has one float64 per step; ``present[name]`` is False for steps without the signal.
    ``gradient_norms`` has shape ``(steps, tensors)``, float32: a finite norm, ``inf`` for a tensor with Inf, ``nan``
    for one with NaN, ``GRADIENT_ABSENT`` for a parameter without a gradient. ``skipped`` marks steps that a gradient
    scaler skipped, ``refused`` those that steadytrain refused. ``tables`` holds the readings of these steps under the
    names of ``TABLES``. ``metrics`` holds occasional values (losses and scores of evaluations) under their logged
    names. ``resumed`` lists the first steps after a resume, as reported or as the step numbers show. ``facts`` holds
    numbers about the whole run, under the names of ``FACTS``.
    """

    steps: IntArray
    time: FloatArray
    signals: Mapping[str, FloatArray]
    present: Mapping[str, NDArray[np.bool_]]
    skipped: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    tensor_names: tuple[str, ...] = ()
    gradient_norms: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    stream: str = FIRST_STREAM
    tables: Mapping[str, Table] = field(default_factory=dict)
    metrics: Mapping[str, Series] = field(default_factory=dict)
    resumed: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    facts: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    def series(self, signal: str) -> Series:
        """The steps that have ``signal``, including skipped and refused ones."""
        if signal not in self.signals:
            return Series(np.zeros(0, np.int64), np.zeros(0, np.float64))
        here = self.present[signal]
        return Series(self.steps[here], self.signals[signal][here])

    def applied(self, signal: str) -> Series:
        """The finite values of ``signal`` at steps whose update was applied. Only these may enter a baseline."""
        if signal not in self.signals:
            return Series(np.zeros(0, np.int64), np.zeros(0, np.float64))
        found = self._applied.get(signal)
        if found is None:
            values = self.signals[signal]
            here = self.present[signal] & ~self.skipped & ~self.refused & np.isfinite(values)
            found = self._applied[signal] = Series(self.steps[here], values[here])
        return Series(found.steps.copy(), found.values.copy())

    @cached_property
    def _applied(self) -> dict[str, Series]:
        """The series of :meth:`applied` that were asked for."""
        return {}

    def cells(self, table: str, column: str) -> Cells | None:
        """One column of a table, None if these steps did not measure it."""
        held = self.tables.get(table)
        if held is None or column not in held.columns:
            return None
        values = held.values[:, :, held.columns.index(column)].astype(np.float64)
        here = ~np.isnan(values).all(axis=1) if values.shape[1] else np.zeros(len(held), np.bool_)
        return Cells(held.steps[here], held.rows, values[here]) if here.any() else None

    def has(self, name: str) -> bool:
        """Whether the window has a signal of this name, as used in ``Detector.needs``."""
        table, _, column = name.partition(".")
        if column:
            held = self.tables.get(table)
            return held is not None and column in held.columns and len(held) > 0
        if name == "gradient_norms":
            return bool(self.tensor_names) and len(self.gradient_norms) > 0
        if name == "metrics":
            return bool(self.metrics)
        if name not in self.present:
            return False
        found = self._measured.get(name)
        if found is None:
            found = self._measured[name] = bool(self.present[name].any())
        return found

    @cached_property
    def _measured(self) -> dict[str, bool]:
        """Whether any step has a signal, of those that were asked for."""
        return {}

    def last(self, count: int) -> Window:
        """The newest ``count`` steps."""
        return self.slice(max(0, len(self) - count), len(self))

    def slice(self, start: int, stop: int) -> Window:
        """Positions ``start`` to ``stop`` (exclusive) of this window."""
        cut = slice(start, stop)
        steps = self.steps[cut]
        first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (1, 0)
        return Window(
            steps=self.steps[cut],
            time=self.time[cut],
            signals={name: values[cut] for name, values in self.signals.items()},
            present={name: values[cut] for name, values in self.present.items()},
            skipped=self.skipped[cut],
            refused=self.refused[cut],
            tensor_names=self.tensor_names,
            gradient_norms=self.gradient_norms[cut] if len(self.gradient_norms) else self.gradient_norms,
            stream=self.stream,
            tables={name: table.between(first, last) for name, table in self.tables.items()},
            metrics={name: series.between(first, last) for name, series in self.metrics.items()},
            resumed=self.resumed[(self.resumed >= first) & (self.resumed <= last)],
            facts=self.facts,
        )


@dataclass(frozen=True)
class ScriptLine(JsonValue):
    """A line of a script, as it was when the script ran."""

    file: str
    line: int
    code: str

    @property
    def place(self) -> str:
        """As messages name it, such as ``train.py:17``."""
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Symptom(JsonValue):
    """A detector's finding in a window: what, when, how severe, and in which tensors.

    ``tensors`` names parameters or modules. ``course`` says how the symptom continued, and ``story`` groups symptoms
    that belong together; ``steadytrain.grouping`` sets both. ``at`` is the line of the script that ``message`` names,
    if it names one.
    """

    name: str
    severity: Severity
    first_step: int
    last_step: int
    message: str
    signals: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    stream: str = FIRST_STREAM
    course: str | None = None
    story: int | None = None
    at: ScriptLine | None = None


def worst(severities: Sequence[Severity]) -> Severity | None:
    """The highest of ``severities``, None if there are none."""
    return max(severities, key=SEVERITIES.index, default=None)
