"""What the tests of readers share: a loss, and reading a file that a test has just written."""

from __future__ import annotations

import math
from pathlib import Path

from steadytrain.logs import Columns, Log, find_logs

NAN = float("nan")


def loss_at(step: int) -> float:
    """A loss that falls; the same for every format, so that what was read can be compared."""
    return round(2.0 + 2.0 * math.exp(-step / 200), 6)


def read(path: Path, **columns: str) -> tuple[Log, ...]:
    return find_logs(path, Columns(**columns)).logs


def read_one(path: Path, **columns: str) -> Log:
    (log,) = read(path, **columns)
    return log


def text(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def signal(log: Log, name: str) -> dict[int, float]:
    """The values of a signal by step."""
    series = log.window.series(name)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def metric(log: Log, name: str) -> dict[int, float]:
    series = log.window.metrics[name]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
