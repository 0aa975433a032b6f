"""The steps in memory: the newest stay, their numbers are unchanged, and the bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.capture.history import STEPS_MAX, TENSOR_BYTES_MAX, TENSOR_STEPS_MAX, TENSOR_STEPS_MIN, History
from steadytrain.model import GRADIENT_ABSENT
from steadytrain.store.segments import StepRecord, window_of


def record(step: int, tensors: int = 2, *, loss: float | None = None, skipped: bool = False) -> StepRecord:
    scalars = {"loss": float(step) if loss is None else loss, "tokens": None if step % 2 else 10.0}
    norms = np.arange(tensors, dtype=np.float32) + step
    return StepRecord(step, 1000.0 + step, scalars, norms, skipped=skipped, refused=step == 7)


def filled(steps: int, names: tuple[str, ...] = ("a", "b")) -> tuple[History, list[StepRecord]]:
    history = History(stream="main")
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
    history = History(stream="main")
    names = tuple(f"layer.{number}" for number in range(tensors))
    before = history.size_bytes
    norms = np.ones(tensors, np.float32)
    for step in range(1, 90):
        history.append(StepRecord(step, 0.0, {"loss": 1.0}, norms), names)
    rows = len(history.recent())
    assert TENSOR_STEPS_MIN <= rows == TENSOR_BYTES_MAX // (2 * 4 * tensors)
    assert history.size_bytes - before <= TENSOR_BYTES_MAX
    assert len(history.window()) == 89
