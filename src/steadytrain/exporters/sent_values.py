"""Which values are sent to other tools, under which names, and how often. Pure.

The run folder keeps everything; another tool gets what can be viewed there. So each table sends some columns and a
bounded number of rows, and a long run is sent ever less often. ``docs/exporters.md`` documents the names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from steadytrain.core.model import GRADIENT_ABSENT, Reading
from steadytrain.exporters.exporter import Histogram, Row
from steadytrain.report.wording import clean
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.segments import StepRecord

ROWS_PER_TABLE_MAX = 64
"""Rows of one table that are sent. Far more cannot be read as charts, and a tracker slows down long before the 10,000
tensors of a large model: Weights & Biases recommends fewer than 10,000 names per run."""

TABLES_EVERY_STEPS = 50
HISTOGRAMS_EVERY_STEPS = 200
FULL_CADENCE_COUNT = 10_000
"""After this many rows the cadence halves, and again after as many more: 10^6 steps give about 66,000 rows."""

ROWS_PER_S_MAX = 20.0
ROWS_AT_ONCE_MAX = 500
"""Rows of scalars per second on average, and the most at once, so that a short run is sent whole. Encoding a row holds
the interpreter's lock for about 20 us (measured) on another thread, which a loop with a thousand steps per second
would notice."""

GRADIENTS = "gradients"
MACHINE = "machine"
HISTOGRAMS = "histograms"
COLUMNS: Mapping[str, Sequence[str]] = {
    "tensors": (
        "weight_norm",
        "weight_nonfinite",
        "update_ratio",
        "unchanged_share",
        "gradient_zero_share",
        "gradient_to_second_moment",
    ),
    "modules": (
        "std",
        "abs_max",
        "kurtosis",
        "zero_share",
        "nonfinite",
        "headroom",
        "attention_entropy_min",
        "attention_logit_max",
        "log_z_mean",
        "log_z_max",
    ),
}
"""The columns of each table that are sent. A table that is not listed sends all columns."""

_BIN = re.compile(r"2\^(-?\d+)$")
NAMES_KEPT_MAX = 4096
_KINDS = {"gradient": "gradients", "weight": "weights", "activation": "activations"}


class Cadence:
    """Decides which steps are due: one in ``every_steps``, and ever fewer as the count grows."""

    def __init__(self, every_steps: int) -> None:
        self._every_steps = every_steps
        self._count = 0
        self._next: int | None = None

    def due(self, step: int) -> bool:
        """Whether ``step`` is due, which then counts as sent. The first step is due."""
        if self._next is not None and step < self._next:
            return False
        stride: int = self._every_steps << (self._count // FULL_CADENCE_COUNT)
        self._next = step - step % stride + stride
        self._count += 1
        return True


class Allowance:
    """Rate limit for rows: ``rate_per_s`` on average, with a burst of up to ``count_max`` unused rows."""

    def __init__(self, rate_per_s: float, count_max: int) -> None:
        self._rate_per_s = rate_per_s
        self._count_max = count_max
        self._left = float(count_max)
        self._time = -math.inf

    def takes(self, time: float) -> bool:
        """Whether one more may be sent at ``time``, in seconds."""
        if time > self._time:
            self._left = min(self._count_max, self._left + (time - self._time) * self._rate_per_s)
            self._time = time
        if self._left < 1:
            return False
        self._left -= 1
        return True


def signals(stream: str, record: StepRecord) -> Row:
    """The scalar signals of a step that were measured."""
    start = _start(stream)
    measured = {f"{start}{name}": float(value) for name, value in record.scalars.items() if value is not None}
    flags = {"skipped": record.skipped, "refused": record.refused}
    measured |= {f"{start}{name}": 1.0 for name, is_set in flags.items() if is_set}
    return Row(record.step, record.time, measured)


def gradient_reading(record: StepRecord, names: tuple[str, ...]) -> Reading:
    """The gradient norms of a step as the table ``gradients``."""
    return Reading(GRADIENTS, names, ("norm",), np.asarray(record.gradient_norms, np.float32).reshape(-1, 1))


def scalars(stream: str, step: int, time: float, reading: Reading) -> Row:
    """A table as scalars ``TABLE/ROW/COLUMN``; for many rows also their median and maximum."""
    start = f"{_start(stream)}{reading.table}"
    values: dict[str, float] = {}
    chosen = chosen_rows(len(reading.rows))
    for position in _chosen_columns(reading):
        name, column = reading.columns[position], reading.values[:, position]
        measured = column != GRADIENT_ABSENT if reading.table == GRADIENTS else ~np.isnan(column)
        for row in chosen:
            if measured[row]:
                path = (start, shown_name(reading.rows[row]), name)
                values["/".join(filter(None, path))] = float(column[row])  # the root is ""
        if reading.table != MACHINE and measured.any():
            values[f"{start}/{name}_median"] = float(np.median(column[measured]))
            values[f"{start}/{name}_largest"] = float(column[measured].max())
    return Row(step, time, values, rare=True)


def histograms(stream: str, step: int, time: float, reading: Reading) -> list[Histogram]:
    """The rows of the table ``histograms``: ``gradient:NAME`` becomes ``gradients/NAME/log2``."""
    exponents = {int(match[1]): at for at, column in enumerate(reading.columns) if (match := _BIN.match(column))}
    if not exponents:
        return []
    first, last = min(exponents), max(exponents)
    other = {column: at for at, column in enumerate(reading.columns) if not _BIN.match(column)}
    found = []
    places = {row: at for at, row in enumerate(reading.rows)}
    for row in _chosen_of_each_kind(reading.rows):
        kind, _, name = reading.rows[row].partition(":")
        values = reading.values[row]
        if np.isnan(values).all():
            continue

        def share(at: int | None, values: np.ndarray[tuple[int], np.dtype[np.float32]] = values) -> float:
            return 0.0 if at is None or math.isnan(values[at]) else float(values[at])

        positive = places.get(f"{kind}+:{name}")
        found.append(
            Histogram(
                step=step,
                time=time,
                name=f"{_start(stream)}{_KINDS.get(kind, kind)}/{shown_name(name)}",
                first=first,
                shares=tuple(share(exponents.get(exponent)) for exponent in range(first, last + 1)),
                **{place: share(other.get(place)) for place in ("zero", "below", "above", "nonfinite")},
                positive=None if positive is None else _positive(reading.values[positive], exponents, other),
            )
        )
    return found


def _positive(
    values: np.ndarray[tuple[int], np.dtype[np.float32]], exponents: Mapping[int, int], other: Mapping[str, int]
) -> tuple[float, ...]:
    """The shares of positive elements: below, in each power of two, above."""
    at = [other.get("below"), *(exponents[exponent] for exponent in sorted(exponents)), other.get("above")]
    return tuple(0.0 if one is None or math.isnan(values[one]) else float(values[one]) for one in at)


def chosen_rows(count: int) -> list[int]:
    """Positions of the rows to send: all, or ``ROWS_PER_TABLE_MAX`` evenly spaced ones."""
    if count <= ROWS_PER_TABLE_MAX:
        return list(range(count))
    return sorted({round(at * (count - 1) / (ROWS_PER_TABLE_MAX - 1)) for at in range(ROWS_PER_TABLE_MAX)})


def _chosen_of_each_kind(rows: Sequence[str]) -> list[int]:
    kinds: dict[str, list[int]] = {}
    for position, row in enumerate(rows):
        kind = row.partition(":")[0]
        if not kind.endswith("+"):  # the sign of another row
            kinds.setdefault(kind, []).append(position)
    return sorted(positions[at] for positions in kinds.values() for at in chosen_rows(len(positions)))


def _chosen_columns(reading: Reading) -> list[int]:
    chosen = COLUMNS.get(reading.table, reading.columns)
    return [position for position, column in enumerate(reading.columns) if column in chosen]


@lru_cache(NAMES_KEPT_MAX)
def shown_name(name: str) -> str:
    """The name of a tensor or module, which the script chose: redacted, and without control characters."""
    return clean(redact_text(name))


def _start(stream: str) -> str:
    """The prefix of a stream's names: none for the first optimizer, else the stream's name."""
    return "" if stream == "main" else f"{stream}/"
