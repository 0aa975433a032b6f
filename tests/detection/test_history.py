"""The steps in memory: the newest stay, their numbers are unchanged, and the bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import GRADIENT_ABSENT, Reading
from steadytrain.detection.step_history import (
    METRIC_VALUES_MAX,
    METRICS_MAX,
    STEPS_MAX,
    TENSOR_BYTES_MAX,
    TENSOR_STEPS_MAX,
    TENSOR_STEPS_MIN,
    StepHistory,
)
from steadytrain.detection.table_history import APART_MAX, BYTES_MAX, NEWEST_MAX
from steadytrain.storage.segments import StepRecord, window_of


def record(step: int, tensors: int = 2, *, loss: float | None = None, skipped: bool = False) -> StepRecord:
    scalars = {"loss": float(step) if loss is None else loss, "tokens": None if step % 2 else 10.0}
    norms = np.arange(tensors, dtype=np.float32) + step
    return StepRecord(step, 1000.0 + step, scalars, norms, skipped=skipped, refused=step == 7)


def filled(steps: int, names: tuple[str, ...] = ("a", "b")) -> tuple[StepHistory, list[StepRecord]]:
    history = StepHistory(stream="main")
    records = [record(step, len(names), skipped=step % 5 == 0) for step in range(1, steps + 1)]
    for one in records:
        history.append(one, names)
    return history, records


@pytest.mark.parametrize("steps", [0, 1, 7, 100, TENSOR_STEPS_MAX + 3])
def test_recent_is_what_was_appended(steps: int) -> None:
    history, records = filled(steps)
    recent = history.recent()
    kept = records[-TENSOR_STEPS_MAX:]
    expected = window_of(kept, ("a", "b") if steps else ())
    assert recent.steps.tolist() == expected.steps.tolist()
    assert recent.time.tolist() == expected.time.tolist()
    assert recent.tensor_names == expected.tensor_names
    assert np.array_equal(recent.gradient_norms, expected.gradient_norms)
    for name in expected.signals:
        assert np.array_equal(recent.signals[name], expected.signals[name])
        assert np.array_equal(recent.present[name], expected.present[name])
    assert np.array_equal(recent.skipped, expected.skipped)
    assert np.array_equal(recent.refused, expected.refused)


@pytest.mark.parametrize("steps", [STEPS_MAX - 1, STEPS_MAX, 2 * STEPS_MAX, 2 * STEPS_MAX + 1, 5 * STEPS_MAX + 13])
def test_the_newest_steps_stay_and_memory_does_not_grow(steps: int) -> None:
    history, records = filled(steps)
    window = history.window()
    assert window.steps.tolist() == [one.step for one in records[-STEPS_MAX:]]
    assert window.signals["loss"].tolist() == [float(step) for step in window.steps]
    assert window.skipped.tolist() == [step % 5 == 0 for step in window.steps]
    assert window.tensor_names == ()
    recent = history.recent()
    assert recent.steps.tolist() == window.steps[-TENSOR_STEPS_MAX:].tolist()
    assert recent.gradient_norms[:, 1].tolist() == [step + 1 for step in recent.steps]
    assert history.size_bytes == filled(1)[0].size_bytes


def test_a_window_does_not_change_under_later_steps() -> None:
    history, _ = filled(10)
    window, recent = history.window(), history.recent()
    before = window.signals["loss"].tolist(), recent.gradient_norms.tolist()
    for step in range(11, 500):
        history.append(record(step), ("a", "b"))
    assert (window.signals["loss"].tolist(), recent.gradient_norms.tolist()) == before


def test_other_tensors_keep_the_rows_of_those_that_stay() -> None:
    history, _ = filled(5)
    history.append(record(6, 3), ("b", "c", "a"))
    history.append(record(7, 1), ("c",))
    assert history.recent().tensor_names == ("c",)
    history, _ = filled(5)
    history.append(record(6, 3), ("b", "c", "a"))
    recent = history.recent()
    assert recent.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert recent.gradient_norms[:, 2].tolist() == [1, 2, 3, 4, 5, 8]  # a: third now
    assert recent.gradient_norms[:, 0].tolist() == [2, 3, 4, 5, 6, 6]  # b: first now
    assert recent.gradient_norms[:, 1].tolist() == [GRADIENT_ABSENT] * 5 + [7]


def test_no_tensors_at_all() -> None:
    history, _ = filled(40, ())
    assert len(history.recent()) == 40
    assert history.recent().gradient_norms.shape == (40, 0)


def test_many_tensors_stay_within_the_bound() -> None:
    tensors = 60_000
    history = StepHistory(stream="main")
    names = tuple(f"layer.{number}" for number in range(tensors))
    before = history.size_bytes
    norms = np.ones(tensors, np.float32)
    for step in range(1, 90):
        history.append(StepRecord(step, 0.0, {"loss": 1.0}, norms), names)
    rows = len(history.recent())
    assert TENSOR_STEPS_MIN <= rows == TENSOR_BYTES_MAX // (2 * 4 * tensors)
    assert history.size_bytes - before <= TENSOR_BYTES_MAX
    assert len(history.window()) == 89


def reading(value: float, rows: tuple[str, ...] = ("a", "b"), columns: tuple[str, ...] = ("norm", "max")) -> Reading:
    return Reading("tensors", rows, columns, np.full((len(rows), len(columns)), value, np.float32))


def with_readings(every: int, steps: int) -> StepHistory:
    history, _ = filled(steps)
    for step in range(every, steps + 1, every):
        history.read(step, 1000.0 + step, reading(step))
    return history


def test_windows_hold_the_readings_of_their_steps() -> None:
    history = with_readings(50, 3000)
    tensors = history.window().tables["tensors"]
    assert tensors.steps.tolist() == list(range(1000, 3001, 50))
    assert tensors.time.tolist() == [1000.0 + step for step in tensors.steps]
    assert np.array_equal(tensors.values[:, 1, 0], tensors.steps.astype(np.float32))
    assert history.recent().tables["tensors"].steps.tolist() == tensors.steps.tolist()


def test_a_window_until_a_step_knows_nothing_of_later_ones() -> None:
    history = with_readings(50, 700)
    history.evaluated(400, {"eval_loss": 2.0})
    history.evaluated(650, {"eval_loss": float("nan")})
    window, recent = history.window(until=640), history.recent(until=640)
    assert int(window.steps[-1]) == int(recent.steps[-1]) == 640
    assert len(recent) == len(recent.gradient_norms)
    assert recent.gradient_norms[-1].tolist() == [640.0, 641.0]
    assert window.tables["tensors"].steps.tolist() == list(range(50, 601, 50))
    assert window.metrics["eval_loss"].steps.tolist() == [400]
    assert np.isnan(history.window().metrics["eval_loss"].values[-1])


def test_readings_at_every_step_do_not_push_out_those_from_long_before() -> None:
    history = with_readings(50, 3000)
    for step in range(3001, 3300):
        history.append(record(step), ("a", "b"))
        history.read(step, 1000.0 + step, reading(step))
    steps = history.window().tables["tensors"].steps
    assert len(steps) <= 2 * (NEWEST_MAX + APART_MAX)
    assert np.diff(steps)[-NEWEST_MAX // 2 :].tolist() == [1] * (NEWEST_MAX // 2)
    assert len(steps[steps <= 2900]) > 20
    assert int(steps[0]) < 1400


def test_a_table_that_was_handed_out_stays_as_it_is() -> None:
    history = with_readings(1, 40)
    table = history.window().tables["tensors"]
    before = table.values.copy()
    for step in range(41, 1000):
        history.append(record(step), ("a", "b"))
        history.read(step, 0.0, reading(step))
    assert np.array_equal(table.values, before)


def test_other_rows_of_a_table_keep_what_has_the_same_name() -> None:
    history = with_readings(50, 100)
    history.append(record(101), ("a", "b"))
    history.read(101, 0.0, reading(7.0, rows=("c", "a"), columns=("max", "rms")))
    table = history.window().tables["tensors"]
    assert (table.rows, table.columns) == (("c", "a"), ("max", "rms"))
    assert table.series("a", "max").values.tolist() == [50.0, 100.0, 7.0]
    assert table.series("c", "max").steps.tolist() == [101]


def test_a_stall_by_other_processes_is_known_while_the_run_trains() -> None:
    history, _ = filled(2)
    columns = ("cpu_busy_share", "process_cpu_cores")
    history.read(2, 0.0, Reading("machine", ("host",), columns, np.array([[1.0, 0.05]], np.float32)))
    assert history.window().tables["machine"].series("host", columns[1]).values.tolist() == [pytest.approx(0.05)]


def test_what_no_detector_reads_is_let_go_and_bytes_are_bounded() -> None:
    history, _ = filled(1)
    before = history.size_bytes
    history.read(1, 0.0, Reading("gradients", ("weight",), ("norm",), np.zeros((1, 1), np.float32)))
    assert history.size_bytes == before
    rows = tuple(f"layer.{number}" for number in range(20_000))
    for step in range(1, 40):
        history.read(step, 0.0, reading(step, rows=rows, columns=tuple(f"c{number}" for number in range(10))))
    assert history.size_bytes - before <= BYTES_MAX
    assert len(history.window().tables["tensors"]) >= 1


def test_metrics_are_bounded() -> None:
    history, _ = filled(600)
    for step in range(1, 601):
        history.evaluated(step, {f"metric {number}": 1.0 for number in range(METRICS_MAX + 5)})
    metrics = history.window().metrics
    assert len(metrics) == METRICS_MAX
    assert {len(series) for series in metrics.values()} == {METRIC_VALUES_MAX}
