"""Retention: which steps stay, what a day costs, and that no moment of the rewriting loses what a reader may read."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from parameters import telling
from steadytrain.core.errors import UsageError
from steadytrain.core.levels import LEVELS
from steadytrain.core.model import Reading, Table
from steadytrain.storage import compaction, tables, thinning
from steadytrain.storage import numbered_files as parts
from steadytrain.storage.columnar import is_available
from steadytrain.storage.compaction import compact_steps, compact_table
from steadytrain.storage.numbered_files import list_parts
from steadytrain.storage.retention import Keeper, keep_run
from steadytrain.storage.run_folder import notable_steps, open_run
from steadytrain.storage.segments import SCALARS, SegmentWriter, StepRecord, read_stream
from steadytrain.storage.tables import TableWriter, read_series, read_table
from steadytrain.storage.thinning import Held, full_steps_of, keep, level_of, near, plan
from waiting import until

ROWS = ("embed.weight", "head.weight")
NOTHING = np.zeros(0, np.float32)


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


# What stays.

STEPS = st.lists(st.integers(0, 200_000), min_size=1, max_size=300, unique=True).map(lambda steps: np.sort(steps))
FULL = st.integers(1, 500)


@given(steps=STEPS, full=FULL, ahead=st.integers(0, 10**6))
def test_the_newest_steps_stay_whole_and_thinning_twice_changes_nothing(
    steps: np.ndarray[tuple[int], np.dtype[np.int64]], full: int, ahead: int
) -> None:
    newest = int(steps[-1]) + ahead
    kept = keep(steps, newest=newest, full_steps=full)
    assert kept[newest - steps < full].all()
    assert kept[0]
    assert keep(steps[kept], newest=newest, full_steps=full).all()


@given(steps=STEPS, full=FULL, looks=st.lists(st.integers(0, 10**6), min_size=1, max_size=6), data=st.data())
def test_thinning_at_many_moments_gives_the_same_as_thinning_once_at_the_end(
    steps: np.ndarray[tuple[int], np.dtype[np.int64]], full: int, looks: list[int], data: st.DataObject
) -> None:
    protected = np.array(data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps))))
    left, shield = steps, protected
    for look in sorted(looks):
        kept = keep(left, newest=int(steps[-1]) + look, full_steps=full, protected=shield)
        left, shield = left[kept], shield[kept]
    once = keep(steps, newest=int(steps[-1]) + max(looks), full_steps=full, protected=protected)
    np.testing.assert_array_equal(left, steps[once])
    assert set(steps[protected]) <= set(left)


@given(count=st.integers(1, 60_000), full=st.integers(10, 500))
@settings(max_examples=30)
def test_every_tenfold_of_age_costs_the_same(count: int, full: int) -> None:
    steps = np.arange(count)
    levels = level_of(steps, newest=count - 1, full_steps=full)
    kept = keep(steps, newest=count - 1, full_steps=full)
    for level in range(int(levels.max()) + 1):
        readings = int(np.count_nonzero(kept & (levels == level)))
        assert readings <= (full + 10 if level == 0 else 0.9 * full + 12)


def test_a_stretch_is_thinned_to_its_first_reading() -> None:
    kept = np.flatnonzero(keep(np.arange(1000), newest=999, full_steps=100))
    assert kept[-100:].tolist() == list(range(900, 1000))
    assert kept[:-100].tolist()[::-1] == list(range(890, -1, -10))


def test_steps_near_what_happened_stay_within_their_bound() -> None:
    steps = np.arange(10_000)
    one = near(steps, [5000], readings_max=1000)
    assert np.flatnonzero(one)[[0, -1]].tolist() == [5000 - thinning.AROUND_STEPS, 5000 + thinning.AROUND_STEPS]
    many = near(steps, list(range(0, 10_000, 500)), readings_max=300)
    assert np.count_nonzero(many) <= 300
    assert many[0]


def test_a_plan_touches_only_what_is_worth_it() -> None:
    fresh = [Held(np.arange(start, start + 50), ROWS, ("norm",)) for start in range(900, 1000, 50)]
    assert plan(fresh, newest=1000, full_steps=200) == []
    assert plan([], newest=1000, full_steps=200) == []
    old = [Held(np.arange(start, start + 50), ROWS, ("norm",)) for start in range(0, 1000, 50)]
    jobs = plan(old, newest=1000, full_steps=200)
    assert all(job.stop <= 16 for job in jobs)
    assert sum(job.stop - job.start for job in jobs) >= 14


def test_parts_whose_union_would_be_wasteful_are_not_put_together() -> None:
    parts = [Held(np.arange(at, at + 5), tuple(f"{at}.{row}" for row in range(50)), ("x",)) for at in range(0, 50, 5)]
    assert plan(parts, newest=60, full_steps=1000) == []
    alike = [Held(np.arange(at, at + 5), ("a", "b", "c", f"only {at}"), ("x",)) for at in range(0, 40, 5)]
    assert [(job.start, job.stop) for job in plan(alike, newest=60, full_steps=1000)] != []


# What a day costs.


def test_a_day_at_a_step_a_second_stays_in_the_budget_and_a_month_far_below() -> None:
    """The sum of docs/schemas.md: 200 tensors, the level `standard`, raw (Parquet saves some)."""
    from steadytrain.capture import machine
    from steadytrain.capture.tensors import activations, statistics

    level = LEVELS["standard"]
    assert level.tensors_every
    assert level.modules_every
    assert level.histograms_every
    cadences = {  # table: (steps between readings, rows, columns)
        "gradients": (1, 200, 1),
        "tensors": (level.tensors_every, 200, len(statistics.COLUMNS)),
        "modules": (level.modules_every, 100, len(activations.COLUMNS)),
        "histograms": (level.histograms_every, 500, len(statistics.HISTOGRAM_COLUMNS)),
        "machine": (int(level.machine_every_s), 2, len(machine.COLUMNS)),
    }
    sizes = {days: _simulate(86_400 * days, cadences) for days in (1, 30)}
    assert 40e6 < sum(sizes[1].values()) < 50e6, sizes[1]
    assert sum(sizes[30].values()) < 50e6 * 30 / 5, sizes[30]


def _simulate(steps: int, cadences: dict[str, tuple[int, int, int]]) -> dict[str, float]:
    """Bytes on disk after ``steps``, with every segment closed and every plan carried out as it falls due."""
    sizes = {}
    for name, (every, rows, columns) in cadences.items():
        head = 24 + 4 * rows * columns
        per_segment = max(1, -(-tables.SEGMENT_BYTES_MAX // head))
        held: list[Held] = []
        names = tuple(map(str, range(rows))), tuple(map(str, range(columns)))
        for start in range(0, steps, every * per_segment):
            stop = min(steps, start + every * per_segment)
            newest = stop - 1
            for job in reversed(plan(held, newest=newest, full_steps=full_steps_of(rows, columns))):
                pairs = zip(held[job.start : job.stop], job.keep, strict=True)
                merged = np.concatenate([part.steps[mask] for part, mask in pairs])
                held[job.start : job.stop] = [Held(merged, *names)]
            held.append(Held(np.arange(start, stop, every), *names))
        sizes[name] = head * sum(len(part.steps) for part in held)
    kept = np.count_nonzero(keep(np.arange(steps), newest=steps, full_steps=thinning.SCALARS_FULL_STEPS))
    sizes["steps"] = float(kept * (24 + 4 * len(SCALARS)))
    return sizes


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


# Cut off, full, raced.


class Killed(BaseException):
    """Stands for the end of the process: nothing that would tidy up runs."""


CALLS = ("replace", "fsync", "unlink")


def _count_calls(monkeypatch: pytest.MonkeyPatch, limit: int | None) -> list[str]:
    """Let ``limit`` calls of the system that change what a reader sees go through; then none, whatever is tried."""
    seen: list[str] = []

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            if limit is not None and len(seen) >= limit:
                raise Killed
            seen.append(name)
            return real(*args, **options)

        return call

    places = [os, *([accessor] if (accessor := getattr(pathlib, "_NormalAccessor", None)) else [])]  # Python 3.10
    for owner in places:
        for name in CALLS:
            if hasattr(owner, name):
                call = counted(name, getattr(os, name))
                monkeypatch.setattr(owner, name, call if owner is os else staticmethod(call))
    return seen


def test_wherever_the_rewriting_is_cut_off_a_reader_sees_all_of_the_old_or_of_the_new(
    tmp_path: Path, small: None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = range(1, 201)
    with monkeypatch.context() as patch:
        seen = _count_calls(patch, None)
        whole = write(tmp_path / "whole" / "main", steps)
        compact_table(whole, places=[], known={}, may_go_on=always)
    final = read_table(whole).steps.tolist()
    assert len(seen) > 20
    for limit in range(len(seen)):
        folder = write(tmp_path / str(limit) / "main", steps)
        with monkeypatch.context() as patch:
            _count_calls(patch, limit)
            with pytest.raises(Killed):
                compact_table(folder, places=[], known={}, may_go_on=always)
        table = read_table(folder)
        assert_true_readings(table)
        assert set(final) <= set(table.steps.tolist())
        compact_table(folder, places=[], known={}, may_go_on=always)
        assert read_table(folder).steps.tolist() == final
        assert not list(folder.glob(".*"))


KILLED_SCRIPT = """
import sys
from pathlib import Path
from steadytrain.storage import compaction, tables
from steadytrain.storage.compaction import compact_table
sys.path[:0] = sys.argv[2].split(":")
import test_retention as tests
tables.RECORDS_PER_SEGMENT_MAX = 10
compaction.full_steps_of = lambda rows, columns: 64
compaction.COLUMNAR_BYTES_MIN = 0
if sys.argv[3] == "raw":
    compaction.is_available = lambda: False
writer, step = tables.TableWriter(Path(sys.argv[1]), "t"), 0
print("ready", flush=True)
while True:
    for step in range(step + 1, step + 101):
        writer.append(step, 1000.0 + step / 3, tests.reading(step))
    compact_table(Path(sys.argv[1]) / "t", places=[], known={}, may_go_on=tests.always)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", telling([0.05, 0.13, 0.31], ["0.13"]))
def test_a_kill_while_it_compacts_leaves_a_table_that_reads(tmp_path: Path, form: str, wait_s: float) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", KILLED_SCRIPT, str(tmp_path / "main"), f"{here}:{here.parent}", form]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
    table = read_table(tmp_path / "main" / "t")
    assert_true_readings(table)
    newest = int(table.steps[-1])
    assert set(range(max(1, newest - 60), newest + 1)) <= set(table.steps.tolist())
    assert set(range(10, newest // 10 * 10, 10)) - set(table.steps.tolist()) <= set(
        range(10, max(10, newest - 700), 10)
    )


def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, small: None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "main", range(1, 301))
    before = read_table(folder)

    def refuse(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            compact_table(folder, places=[], known={}, may_go_on=always)
    assert not list(folder.glob(".*"))
    np.testing.assert_array_equal(read_table(folder).values, before.values)


def test_a_reader_beside_the_rewriting_never_misses_a_step(tmp_path: Path, small: None, form: str) -> None:
    folder, known = tmp_path / "main" / "t", {}
    writer = TableWriter(tmp_path / "main", "t")
    done = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                if folder.exists():
                    table = read_table(folder)
                    assert_true_readings(table)
                    newest = int(table.steps.max(initial=0))
                    assert set(range(max(1, newest - 60), newest + 1)) <= set(table.steps.tolist())
                    read_series(folder, ROWS[0], "norm") if newest else None
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, 1201):
        writer.append(step, 1000.0 + step / 3, reading(step))
        if step % 40 == 0:
            compact_table(folder, places=[], known=known, may_go_on=always)
    done.set()
    reader.join(10)
    writer.close()
    assert failures == []


def test_parts_that_another_covers_do_not_count_and_are_cleaned_up(tmp_path: Path) -> None:
    for name in ("000001.rows", "000002.rows", "000001-000002.rows", "000001-000002.parquet", "000003.rows"):
        (tmp_path / name).touch()
    for name in ("notes.rows", "1.rows", "000004-000003.rows", "000009.txt"):
        (tmp_path / name).touch()
    names = [part.path.name for part in list_parts(tmp_path, tables.SUFFIXES)]
    assert names == ["000001-000002.parquet", "000003.rows"]
    parts.clean(tmp_path, tables.SUFFIXES)
    assert sorted(path.name for path in tmp_path.glob("0000*.rows")) == ["000003.rows", "000004-000003.rows"]
    assert parts.next_number(tmp_path, tables.SUFFIXES) == 4


def test_a_part_that_is_no_file_of_the_run_is_not_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "main", range(3))
    elsewhere = write(tmp_path / "other", range(5))
    (folder / "000002.rows").symlink_to(elsewhere / "000001.rows")
    (folder / "000002.json").symlink_to(elsewhere / "000001.json")
    assert len(read_table(folder)) == 3


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
        with pytest.raises(UsageError, match=r"pip install 'steadytrain\[query\]'") as caught:
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


# The thread.


def _run(path: Path, steps: int) -> Path:
    path = builders.write_run(path, steps=(), symptoms=[builders.symptom(300, severity="note"), builders.symptom(150)])
    write(path / "tables" / "main", range(1, steps + 1))
    return path


def test_what_happened_is_ranked_by_its_gravity(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run", symptoms=[builders.symptom(300, severity="note"), builders.symptom(150)])
    assert notable_steps(path, "main") == [412, 150, 300]
    assert notable_steps(path, "other") == [412]


def test_the_keeper_thins_in_the_background_and_leaves_no_thread(tmp_path: Path, small: None, form: str) -> None:
    path = _run(tmp_path / "run", 801)
    folder = path / "tables" / "main" / "t"
    errors: list[Exception] = []
    keeper = Keeper(path, errors.append)
    keeper.start()
    keeper.start()
    keeper.wake()
    until(lambda: len(read_table(folder)) < 500)
    keeper.close()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "steadytrain-retention"])
    assert errors == []
    table = read_table(folder)
    assert_true_readings(table)
    assert set(range(150 - 16, 150 + 17)) <= set(table.steps.tolist())


def test_an_error_of_the_keeper_is_handed_over_and_after_some_it_gives_up(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _run(tmp_path / "run", 301)
    (path / "tables" / "main" / "t" / "000002.json").write_text("{")
    monkeypatch.setattr("steadytrain.storage.retention.PERIOD_S", 0.001)
    errors: list[Exception] = []
    keeper = Keeper(path, errors.append)
    keeper.start()
    until(lambda: len(errors) == 3)
    assert keeper._thread
    keeper._thread.join()
    assert all(isinstance(error, UsageError) for error in errors)
    keeper.close()


def test_the_keeper_stops_in_the_middle_of_a_file(tmp_path: Path, small: None, form: str) -> None:
    path = _run(tmp_path / "run", 801)
    asked: list[int] = []

    def once() -> bool:
        asked.append(1)
        return len(asked) < 3

    keep_run(path, {}, {}, once)
    table = read_table(path / "tables" / "main" / "t")
    assert_true_readings(table)
    assert len(table) > 300
    assert not list((path / "tables" / "main" / "t").glob(".*"))


def test_a_child_process_has_no_keeper_to_stop(tmp_path: Path) -> None:
    keeper = Keeper(_run(tmp_path / "run", 20), lambda error: None)
    keeper.start()
    child = os.fork()
    if child == 0:
        keeper.wake()
        keeper.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    keeper.close()
