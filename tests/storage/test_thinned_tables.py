"""Thinned tables read as the plan says, whatever their format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from retained_tables import ROWS, always, assert_true_readings, reading, write

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Reading
from steadytrain.storage import compaction, tables
from steadytrain.storage.compaction import compact_steps, compact_table
from steadytrain.storage.numbered_files import list_parts
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.segments import SCALARS, SegmentWriter, StepRecord, read_stream
from steadytrain.storage.tables import TableWriter, read_series, read_table

NOTHING = np.zeros(0, np.float32)


# On disk.


def test_a_thinned_table_reads_as_the_plan_says(tmp_path: Path, small: None, form: str) -> None:
    folder = write(tmp_path / "main", range(1, 801))
    before = sum(file.stat().st_size for file in folder.glob("*.rows"))
    compact_table(folder, places=[300], known={}, may_go_on=always)
    table = read_table(folder)
    assert_true_readings(table)
    assert set(range(800 - 63, 801)) <= set(table.steps.tolist())
    assert set(range(300 - 16, 300 + 17)) <= set(table.steps.tolist())
    assert len(table) < 350
    suffixes = {file.suffix for file in folder.iterdir()}
    assert suffixes == ({".rows", ".json", ".parquet"} if form == "parquet" else {".rows", ".json"})
    if form == "raw":
        assert sum(file.stat().st_size for file in folder.glob("*.rows")) < before / 2
    for row in ROWS:
        series = read_series(folder, row, "mean")
        np.testing.assert_array_equal(series.steps, table.steps)
        np.testing.assert_array_equal(series.values, table.series(row, "mean").values)


def test_only_large_parts_become_parquet_and_small_again_when_they_are_thinned(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(compaction, "COLUMNAR_BYTES_MIN", 30 * (24 + 16))
    writer, known, kinds = TableWriter(tmp_path / "main", "t"), {}, set()
    folder = tmp_path / "main" / "t"
    for step in range(1, 1001):
        writer.append(step, 1000.0 + step / 3, reading(step))
        if step % 60 == 0:
            compact_table(folder, places=[70], known=known, may_go_on=always)
            held = [
                (part.path.suffix, len(tables.open_part(part).steps)) for part in list_parts(folder, tables.SUFFIXES)
            ]
            kinds |= {(suffix, steps >= 30) for suffix, steps in held}
    writer.close()
    assert kinds == {(".parquet", True), (".rows", False)}
    assert_true_readings(read_table(folder))


def test_thinning_a_table_again_changes_nothing(tmp_path: Path, small: None, form: str) -> None:
    folder = write(tmp_path / "main", range(1, 801))
    states = []
    for _ in range(8):
        compact_table(folder, places=[], known={}, may_go_on=always)
        states.append(sorted((file.name, file.read_bytes()) for file in folder.iterdir()))
    assert states[-1] == states[-2]


def test_a_table_thinned_while_it_grows_stays_small_in_bytes_and_in_files(
    tmp_path: Path, small: None, form: str
) -> None:
    writer, known = TableWriter(tmp_path / "main", "t"), {}
    for step in range(1, 3001):
        writer.append(step, 1000.0 + step / 3, reading(step))
        if step % 50 == 0:
            compact_table(tmp_path / "main" / "t", places=[], known=known, may_go_on=always)
    writer.close()
    table = read_table(tmp_path / "main" / "t")
    assert_true_readings(table)
    assert table.steps[-1] == 3000
    assert len(table) < 64 * 4
    assert len(list_parts(tmp_path / "main" / "t", tables.SUFFIXES)) < 24
    assert len(known) < 100


def test_rows_that_come_and_go_are_put_together(tmp_path: Path, small: None, form: str) -> None:
    rows = (("a", "b", "c", "d"), ("b", "c", "d"), ("d", "c", "b", "e"))
    folder = write(tmp_path / "main", range(1, 401), lambda step: rows[step // 2 % 3])
    files = len(list_parts(folder, tables.SUFFIXES))
    before = read_table(folder)
    for _ in range(6):
        compact_table(folder, places=[], known={}, may_go_on=always)
    table = read_table(folder)
    assert len(list_parts(folder, tables.SUFFIXES)) < files / 4
    assert_true_readings(table)
    assert set(table.rows) == {"a", "b", "c", "d", "e"}
    kept = np.isin(before.steps, table.steps)
    for row in table.rows:
        expected = before.values[kept, before.rows.index(row)]
        np.testing.assert_array_equal(table.values[:, table.rows.index(row)], expected)


def test_what_is_not_a_number_survives_and_an_absent_gradient_stays_absent(
    tmp_path: Path, small: None, form: str
) -> None:
    writer = TableWriter(tmp_path / "main", "gradients")
    for step in range(1, 301):
        norms = np.array([[np.nan], [np.inf], [-1.0]], np.float32)
        writer.append(step, float(step), Reading("gradients", ("a", "b", "c"), ("norm",), norms))
    writer.close()
    folder = tmp_path / "main" / "gradients"
    compact_table(folder, places=[], known={}, may_go_on=always)
    table = read_table(folder)
    assert len(table) < 200
    np.testing.assert_array_equal(table.values[:, :, 0], [[np.nan, np.inf, -1.0]] * len(table))
    assert np.isnan(read_series(folder, "a", "norm").values).all()
    assert len(read_series(folder, "c", "norm")) == 0


def test_a_damaged_record_is_not_given_a_new_checksum(tmp_path: Path, small: None, form: str) -> None:
    folder = write(tmp_path / "main", range(1, 301))
    victim = folder / "000001.rows"
    damaged = bytearray(victim.read_bytes())
    damaged[-5] ^= 1
    victim.write_bytes(damaged)
    compact_table(folder, places=[5], known={}, may_go_on=always)
    table = read_table(folder)
    assert_true_readings(table)
    assert 10 not in table.steps
    assert 9 in table.steps


def test_scalars_are_thinned_as_they_lie(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.storage.segments.RECORDS_PER_SEGMENT_MAX", 50)
    writer = SegmentWriter(tmp_path / "main", stream="main")
    for record in builders.records(900, nan_at=500):
        writer.append(record, builders.TENSORS)
    writer.close()
    before = read_stream(tmp_path / "main")
    compact_steps(tmp_path / "main", places=[500], may_go_on=always)
    after = read_stream(tmp_path / "main")
    assert len(after) < 400
    kept = np.isin(before.steps, after.steps)
    for name in SCALARS:
        np.testing.assert_array_equal(after.signals[name], before.signals[name][kept])
        np.testing.assert_array_equal(after.present[name], before.present[name][kept])
    np.testing.assert_array_equal(after.gradient_norms, before.gradient_norms[kept])
    np.testing.assert_array_equal(after.refused, before.refused[kept])
    assert set(range(500 - 16, 500 + 17)) <= set(after.steps.tolist())


# Parquet from elsewhere, or without pyarrow.


def test_without_pyarrow_a_compacted_table_says_what_to_install(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    path = builders.write_run(tmp_path / "run", steps=())
    steps = SegmentWriter(path / "steps" / "main", stream="main")
    norms = TableWriter(path / "tables" / "main", "gradients")
    for step in range(1, 201):
        steps.append(StepRecord(step, float(step), {"loss": 1.0}, NOTHING), ())
        norms.append(step, float(step), Reading("gradients", ("a",), ("norm",), np.ones((1, 1), np.float32)))
    steps.close()
    norms.close()
    compact_table(path / "tables" / "main" / "gradients", places=[], known={}, may_go_on=always)
    monkeypatch.setattr(tables, "is_available", lambda: False)
    monkeypatch.setattr("steadytrain.storage.columnar.is_available", lambda: False)
    run = open_run(path)
    for read in (lambda: run.table("gradients"), lambda: run.series("gradients", "a", "norm")):
        with pytest.raises(UsageError, match=r"pip install 'duckdb>=\S+ 'pyarrow>=") as caught:
            read()
        assert "\n" not in str(caught.value)
    window = run.window()
    assert len(window) == 200
    assert (window.gradient_norms[-64:, 0] == 1).all()


@pytest.mark.parametrize("damage", ["cut", "other", "newer", "layout", "empty"])
def test_a_parquet_file_from_a_stranger_is_one_line(tmp_path: Path, small: None, damage: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    folder = write(tmp_path / "main", range(1, 301))
    compact_table(folder, places=[], known={}, may_go_on=always)
    file = next(folder.glob("*.parquet"))
    content = pq.read_table(file)
    document = pq.read_metadata(file).metadata[b"steadytrain"]
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        changed = {
            "other": b"{}",
            "newer": document.replace(b'"columnar": 1', b'"columnar": 9'),
            "layout": document.replace(b'"readings": ', b'"readings": 1'),
        }[damage]
        assert changed != document
        metadata = {**pq.read_metadata(file).metadata, b"steadytrain": changed}
        pq.write_table(pa.table(content).replace_schema_metadata(metadata), file)
    with pytest.raises(UsageError, match="upgrade steadytrain" if damage == "newer" else "damaged") as caught:
        read_table(folder)
    assert "\n" not in str(caught.value)
