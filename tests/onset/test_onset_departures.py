"""What left its course first, by numbers alone: planted departures are found at their step, noise is not blamed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadytrain.core.model import FloatArray
from steadytrain.onset.departures import Course, departures, reaches_back
from steadytrain.onset.measures import QUANTITIES, Key

STEPS, SYMPTOM = 200, 150


def noise(seed: int, *, level: float = 1.0, width: float = 0.2, steps: int = STEPS) -> FloatArray:
    """Positive, with the skew that norms of single tensors have."""
    return level * np.exp(width * np.random.default_rng(seed).standard_normal(steps))


def course(**columns: FloatArray) -> Course:
    """One tensor ``w`` a quantity."""
    keys = tuple(Key(name, "w") for name in columns)
    return Course(np.arange(1, STEPS + 1), keys, np.stack([*columns.values()], axis=1))


def test_a_course_that_nothing_leaves() -> None:
    quiet = {name: noise(at, width=0.1) for at, name in enumerate(QUANTITIES) if QUANTITIES[name].limit is None}
    assert departures(course(**quiet), SYMPTOM) == ()


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.floats(0.05, 0.5))
def test_hundreds_of_noisy_tensors_blame_nothing(seed: int, width: float) -> None:
    keys = tuple(Key("gradient_norm", f"layer.{number}") for number in range(200))
    rows = [noise(seed + number, width=width) for number in range(200)]
    assert departures(Course(np.arange(1, STEPS + 1), keys, np.stack(rows, axis=1)), SYMPTOM) == ()


def test_falling_is_no_departure_of_what_is_worse_when_high() -> None:
    falling = noise(3) * np.exp(-np.arange(STEPS) / 20.0)
    assert departures(course(loss=falling, gradient_norm=falling), SYMPTOM) == ()


def test_one_bad_batch_comes_before_the_loss_that_it_made() -> None:
    targets, loss = noise(1), noise(2)
    targets[SYMPTOM - 1] *= 1000.0
    loss[SYMPTOM - 1] *= 500.0
    found = departures(course(loss=loss, target_rms=targets), SYMPTOM)
    assert [(one.step, one.key.quantity) for one in found] == [(SYMPTOM, "target_rms"), (SYMPTOM, "loss")]
    assert found[0].z > 8
    assert found[0].usual == pytest.approx(1.0, rel=0.2)


def test_an_update_that_jumped_stays_out_although_the_symptom_comes_late() -> None:
    update, loss = noise(1), noise(2)
    update[99:] *= 30.0
    loss[140:] *= 8.0
    found = departures(course(loss=loss, update_ratio=update), SYMPTOM)
    assert [(one.step, one.key.quantity) for one in found] == [(100, "update_ratio"), (141, "loss")]


def test_what_came_and_went_long_before_is_not_the_onset() -> None:
    update = noise(1)
    update[60] *= 100.0
    assert departures(course(update_ratio=update), SYMPTOM) == ()


def test_slow_growth_into_a_limit_is_traced_back_to_where_it_began() -> None:
    growth = np.exp(np.maximum(0, np.arange(STEPS) - 39) / 20.0)
    found = departures(course(attention_logit_max=noise(5, width=0.03) * growth), SYMPTOM)
    assert found[0].slow
    assert 40 < found[0].step < 60
    assert found[0].passed is not None
    assert 110 < found[0].passed < 125


def test_what_was_beyond_its_limit_from_the_start_and_stays_is_a_mask() -> None:
    assert departures(course(headroom=np.full(STEPS, 1.0)), SYMPTOM) == ()


def test_weights_that_grow_fourfold_are_traced_back_too() -> None:
    found = departures(course(parameter_norm=np.exp(np.arange(STEPS) / 60.0)), SYMPTOM)
    assert found[0].slow
    assert not found[0].cut
    assert departures(course(parameter_norm=np.exp(np.arange(STEPS) / 200.0)), SYMPTOM) == ()


def test_a_level_of_the_batch_that_moved_a_little_and_stays_is_a_shift() -> None:
    rms = noise(7, width=0.05)
    rms[119:] *= 1.4
    found = departures(course(input_rms=rms), SYMPTOM)
    assert [(one.step, one.key.quantity) for one in found] == [(120, "input_rms")]


def test_a_value_that_is_not_finite_left_its_course_and_what_was_not_measured_did_not() -> None:
    gradient, sparse = noise(1), np.full(STEPS, np.nan)
    gradient[SYMPTOM - 1 :] = np.inf
    sparse[::50] = 1.0
    found = departures(course(gradient_norm=gradient, output_std=sparse), SYMPTOM)
    assert [(one.step, one.key.quantity) for one in found] == [(SYMPTOM, "gradient_norm")]


def test_a_loss_below_zero_is_compared_by_differences() -> None:
    loss = np.linspace(-10.0, -12.0, STEPS) + np.random.default_rng(1).normal(0, 0.1, STEPS)
    assert departures(course(loss=loss), SYMPTOM) == ()
    loss[SYMPTOM - 1 :] += 40.0
    assert departures(course(loss=loss), SYMPTOM)[0].step == SYMPTOM


def test_of_a_departure_at_the_edge_more_has_to_be_seen() -> None:
    update = noise(1)
    update[14:] *= 30.0
    found = departures(course(update_ratio=update), SYMPTOM)
    assert found[0].step == 15
    assert reaches_back(found, course(update_ratio=update))
    assert not reaches_back(found, Course(np.arange(5, 205), (Key("update_ratio", "w"),), update[:, None]))


def test_windows_are_joined_and_the_later_one_counts() -> None:
    early = Course(np.arange(1, 6), (Key("loss", ""), Key("log_z", "")), np.ones((5, 2)))
    late = Course(np.arange(4, 8), (Key("loss", ""), Key("headroom", "x")), np.full((4, 2), 2.0))
    joined = early.joined(late)
    assert joined.steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert joined.values[:, joined.keys.index(Key("loss", ""))].tolist() == [1, 1, 1, 2, 2, 2, 2]
    assert np.isnan(joined.values[3:, joined.keys.index(Key("log_z", ""))]).all()
