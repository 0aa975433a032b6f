"""Tables of readings: what is written comes back, whatever the disk or a stranger does to the files."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.model import GRADIENT_ABSENT, Reading
from steadytrain.storage import tables
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.segments import SegmentWriter, StepRecord
from steadytrain.storage.tables import TableWriter, read_series, read_table

ROWS = ("embed.weight", "head.weight", "head.bias")
COLUMNS = ("weight_norm", "update_ratio")
NOTHING = np.zeros(0, np.float32)


def reading(seed: int, rows: tuple[str, ...] = ROWS, columns: tuple[str, ...] = COLUMNS, table: str = "t") -> Reading:
    values = np.random.default_rng(seed).normal(size=(len(rows), len(columns))).astype(np.float32)
    return Reading(table, rows, columns, values)


def write(folder: Path, steps: range, *, name: str = "t", **names: Any) -> Path:
    """A table of ``reading(step)`` at each of ``steps``; the folder of the table."""
    writer = TableWriter(folder, name)
    for step in steps:
        writer.append(step, 1000.0 + step, reading(step, table=name, **names))
    writer.close()
    return folder / name


def expected(steps: range) -> np.ndarray[Any, Any]:
    return np.stack([reading(step).values for step in steps])


@settings(max_examples=40)
@given(data=st.data(), rows=st.integers(0, 4), columns=st.integers(0, 3), count=st.integers(1, 5))
def test_a_table_gives_back_every_bit_that_was_written(
    data: st.DataObject, rows: int, columns: int, count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    values = data.draw(npst.arrays(np.float32, (count, rows, columns)))
    steps = data.draw(st.lists(st.integers(0, 2**60), min_size=count, max_size=count))
    folder = tmp_path_factory.mktemp("run") / "main"
    writer = TableWriter(folder, "t")
    names = tuple(f"row {index}" for index in range(rows)), tuple(f"column {index}" for index in range(columns))
    for step, one in zip(steps, values, strict=True):
        writer.append(step, step / 7, Reading("t", *names, one))
    writer.close()
    table = read_table(folder / "t")
    assert (table.name, table.rows, table.columns) == ("t", *names)
    assert table.steps.tolist() == steps
    assert table.time.tolist() == [step / 7 for step in steps]
    np.testing.assert_array_equal(table.values, values)


def test_nothing_is_on_disk_before_the_first_reading(tmp_path: Path) -> None:
    TableWriter(tmp_path / "main", "t").close()
    assert not (tmp_path / "main").exists()


def test_a_series_is_the_cell_of_the_table(tmp_path: Path) -> None:
    folder = write(tmp_path / "main", range(1, 20))
    series = read_series(folder, "head.weight", "update_ratio")
    assert series.steps.tolist() == list(range(1, 20))
    np.testing.assert_array_equal(series.values, expected(range(1, 20))[:, 1, 1])


def test_other_rows_or_columns_start_a_segment_and_what_is_missing_is_nan(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "main", "t")
    writer.append(1, 1.0, Reading("t", ("a", "b"), ("x",), np.array([[1], [2]], np.float32)))
    writer.append(2, 2.0, Reading("t", ("b", "c"), ("x",), np.array([[3], [4]], np.float32)))
    writer.append(3, 3.0, Reading("t", ("b", "c"), ("y", "x"), np.array([[5, 6], [7, 8]], np.float32)))
    writer.close()
    table = read_table(tmp_path / "main" / "t")
    assert (table.rows, table.columns) == (("a", "b", "c"), ("x", "y"))
    nan = float("nan")
    np.testing.assert_array_equal(table.values[:, :, 0], [[1, 2, nan], [nan, 3, 4], [nan, 6, 8]])
    np.testing.assert_array_equal(table.values[:, :, 1], [[nan] * 3, [nan] * 3, [nan, 5, 7]])
    assert read_series(tmp_path / "main" / "t", "a", "x").steps.tolist() == [1]
    assert read_series(tmp_path / "main" / "t", "c", "x").values.tolist() == [4, 8]


def test_a_full_segment_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RECORDS_PER_SEGMENT_MAX", 3)
    folder = write(tmp_path / "main", range(8))
    assert len(list(folder.glob("*.rows"))) == 3
    np.testing.assert_array_equal(read_table(folder).values, expected(range(8)))


def test_a_segment_closes_at_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SEGMENT_BYTES_MAX", 100)
    monkeypatch.setattr(tables, "SCHEMA_SHARE_MAX", 1e9)
    folder = write(tmp_path / "main", range(6))
    assert sorted(path.stat().st_size for path in folder.glob("*.rows")) == [3 * 48] * 2


def test_a_file_cut_anywhere_in_the_last_record_opens_with_all_earlier_ones(tmp_path: Path) -> None:
    folder = write(tmp_path / "main", range(4))
    path = folder / "000001.rows"
    whole = path.read_bytes()
    size = len(whole) // 4
    for cut in range(3 * size, 4 * size):
        path.write_bytes(whole[:cut])
        assert read_table(folder).steps.tolist() == [0, 1, 2]
        assert read_series(folder, *("head.bias", "update_ratio")).steps.tolist() == [0, 1, 2]


def test_a_flipped_bit_in_a_record_ends_the_reading_before_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "main", range(3))
    path = folder / "000001.rows"
    whole = path.read_bytes()
    size = len(whole) // 3
    for position in range(2 * size, 3 * size):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        assert read_table(folder).steps.tolist() == [0, 1]
        assert read_series(folder, "head.bias", "update_ratio").steps.tolist() == [0, 1]


def test_a_write_that_the_disk_cut_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TableWriter(tmp_path / "main", "t")
    writer.append(1, 1.0, reading(1))
    whole_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole_write(file, data[:-3]))
    with pytest.raises(OSError, match="step 2"):
        writer.append(2, 2.0, reading(2))
    monkeypatch.undo()
    writer.append(3, 3.0, reading(3))
    writer.close()
    assert read_table(tmp_path / "main" / "t").steps.tolist() == [1, 3]


def test_a_disk_that_is_full_costs_the_reading_in_flight_and_no_other(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "main", "t")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the schema fits, and twenty records and a torn one
    try:
        for step in range(20):
            writer.append(step, float(step), reading(step))
        with pytest.raises(OSError, match="step 20"):
            writer.append(20, 20.0, reading(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_table(tmp_path / "main" / "t").steps.tolist() == list(range(20))
    writer.append(21, 21.0, reading(21))
    writer.close()
    assert read_table(tmp_path / "main" / "t").steps.tolist() == [*range(20), 21]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "upgrade steadytrain"),
        ({"version": "1"}, "damaged"),
        ({"format": "steadytrain.segment"}, "damaged"),
        ({"rows": [1, 2, 3]}, "damaged"),
        ({"rows": ["a", "a", "b"]}, "damaged"),
        ({"columns": None}, "damaged"),
        ({"stream": 3}, "damaged"),
        ({"rows": [str(i) for i in range(20_000)], "columns": [str(i) for i in range(20_000)]}, "refused"),
    ],
)
def test_a_schema_that_cannot_be_read_says_so(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = write(tmp_path / "main", range(2))
    schema = folder / "000001.json"
    schema.write_text(json.dumps({**json.loads(schema.read_text()), **change}))
    for read in (lambda: read_table(folder), lambda: read_series(folder, "head.bias", "update_ratio")):
        with pytest.raises(UsageError, match=message) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_what_does_not_fit_in_memory_is_refused_with_what_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "main", range(10))
    monkeypatch.setattr(tables, "TABLE_BYTES_MAX", 10 * 3 * 2 * 4 - 1)
    with pytest.raises(UsageError, match="read one `series`"):
        read_table(folder)
    assert len(read_series(folder, "head.bias", "update_ratio")) == 10


def test_an_unknown_cell_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cell 'nobody', 'update_ratio'"):
        read_series(write(tmp_path / "main", range(2)), "nobody", "update_ratio")


# The run folder.


def gradients(*norms: float) -> Reading:
    return Reading("gradients", ("a", "b")[: len(norms)], ("norm",), np.array(norms, np.float32)[:, None])


def test_the_gradient_norms_of_a_run_come_from_its_table_joined_on_the_step(tmp_path: Path) -> None:
    path = builders.write_run(tmp_path / "run", steps=())
    steps = SegmentWriter(path / "steps" / "main", stream="main")
    for step in range(1, 6):
        steps.append(StepRecord(step, float(step), {"loss": 1.0}, NOTHING), ())
    steps.close()
    norms = TableWriter(path / "tables" / "main", "gradients")
    for step, one in [(1, gradients(1, 2)), (2, gradients(float("nan"), GRADIENT_ABSENT)), (4, gradients(7))]:
        norms.append(step, float(step), one)
    norms.close()
    run = open_run(path)
    window = run.window()
    assert window.tensor_names == ("a", "b")
    expected_norms = [[1, 2], [float("nan"), -1], [-1, -1], [7, -1], [-1, -1]]
    np.testing.assert_array_equal(window.gradient_norms, expected_norms)
    assert run.scalars().tensor_names == ()
    assert run.tables() == ["gradients"]
    assert run.tables("../..") == []
    np.testing.assert_array_equal(run.series("gradients", "a", "norm").values, [1, float("nan"), 7])
    assert run.series("gradients", "b", "norm").steps.tolist() == [1]
    with pytest.raises(UsageError, match="no table 'tensors'; it has: gradients"):
        run.table("tensors")
