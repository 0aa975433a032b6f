"""Tables and readings that the tests of retention share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from steadytrain.core.model import Reading, Table
from steadytrain.storage import compaction, tables, thinning
from steadytrain.storage.columnar import is_available
from steadytrain.storage.tables import TableWriter

ROWS = ("embed.weight", "head.weight")


def always() -> bool:
    return True


@pytest.fixture(params=["parquet", "raw"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With pyarrow and without."""
    if request.param == "raw":
        monkeypatch.setattr(compaction, "is_available", lambda: False)
    elif not is_available():
        pytest.skip("pyarrow is not installed")
    return str(request.param)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 10 readings, kept whole for 64 steps: a run of hundreds of steps has everything a long one has."""
    monkeypatch.setattr(tables, "RECORDS_PER_SEGMENT_MAX", 10)
    monkeypatch.setattr(compaction, "full_steps_of", lambda rows, columns: 64)
    monkeypatch.setattr(compaction, "SCALARS_FULL_STEPS", 64)
    monkeypatch.setattr(compaction, "COLUMNAR_BYTES_MIN", 0)
    monkeypatch.setattr(thinning, "AROUND_STEPS", 16)


def value(step: int) -> float:
    return float(np.float32(np.sin(step)))


def reading(step: int, rows: tuple[str, ...] = ROWS, name: str = "t") -> Reading:
    columns = ("norm", "mean")
    return Reading(name, rows, columns, np.full((len(rows), 2), value(step), np.float32))


def write(folder: Path, steps: range, rows: Callable[[int], tuple[str, ...]] = lambda step: ROWS) -> Path:
    writer = TableWriter(folder, "t")
    for step in steps:
        writer.append(step, 1000.0 + step / 3, reading(step, rows(step)))
    writer.close()
    return folder / "t"


def assert_true_readings(table: Table) -> None:
    """What is there is what was written: nothing twice, nothing out of order, nothing at another step."""
    assert (np.diff(table.steps) > 0).all()
    np.testing.assert_array_equal(table.time, 1000.0 + table.steps / 3)
    for step, values in zip(table.steps.tolist(), table.values, strict=True):
        assert set(values[~np.isnan(values)].tolist()) == {value(step)}
