"""``steadytrain.load_run``: a run as pandas and Arrow see it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import builders
import steadytrain
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Reading
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.tables import TableWriter

NAN = float("nan")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    path = builders.bad_run(tmp_path / "run")
    writer = TableWriter(path / "tables" / "main", "gradients")
    for step in (1, 2):
        values = np.array([[step], [NAN], [-1]], np.float32)
        writer.append(step, step / 4, Reading("gradients", builders.TENSORS, ("norm",), values))
    writer.close()
    loaded = steadytrain.load_run(path)
    assert repr(loaded) == repr(open_run(path))
    return loaded


def test_steps_as_pandas(run: Run) -> None:
    pytest.importorskip("pandas")
    frame = run.to_pandas()
    window = run.window()
    assert frame["step"].tolist() == window.steps.tolist()
    np.testing.assert_array_equal(frame["loss"], window.signals["loss"])
    assert frame["tokens"].isna().all()
    assert frame["refused"].tolist() == window.refused.tolist()


def test_steps_as_arrow_tell_the_absent_from_the_measured(run: Run) -> None:
    pytest.importorskip("pyarrow")
    table = run.to_arrow()
    assert table["tokens"].null_count == 412
    assert table["loss"].null_count == 0
    assert np.isnan(table["loss"][411].as_py())


def test_a_table_is_long_and_sorted_by_row(run: Run) -> None:
    pytest.importorskip("pandas")
    frame = run.to_pandas("gradients")
    assert frame["name"].tolist() == [name for name in builders.TENSORS for _ in range(2)]
    assert frame["step"].tolist() == [1, 2] * 3
    assert frame["time"].tolist() == [0.25, 0.5] * 3
    np.testing.assert_array_equal(frame["norm"], [1, 2, NAN, NAN, NAN, NAN])
    assert frame["norm"].dtype == np.float32


def test_a_table_in_arrow_has_null_for_an_absent_gradient(run: Run) -> None:
    pytest.importorskip("pyarrow")
    table = run.to_arrow("gradients")
    assert table["norm"].is_null().to_pylist() == [False] * 4 + [True] * 2
    assert table["name"].to_pylist()[::2] == list(builders.TENSORS)
    with pytest.raises(UsageError, match="no table 'tensors'"):
        run.to_arrow("tensors")


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_missing_package_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"needs {package}"):
        run.to_pandas() if package == "pandas" else run.to_arrow()


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run"):
        steadytrain.load_run(tmp_path / "nobody")
