"""Retention: which steps stay, what a day costs, and the thread that thins."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retained_tables import ROWS, assert_true_readings, write

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.levels import LEVELS
from steadytrain.storage import tables, thinning
from steadytrain.storage.retention import Keeper, keep_run
from steadytrain.storage.run_folder import notable_steps
from steadytrain.storage.segments import SCALARS
from steadytrain.storage.tables import read_table
from steadytrain.storage.thinning import Held, full_steps_of, keep, level_of, near, plan
from waiting import until

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
