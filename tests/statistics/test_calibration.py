"""Thresholds from the run's own tail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from steadytrain.core.model import Series
from steadytrain.statistics.calibration import (
    BIN,
    FREEDOMS,
    LOWEST,
    Z_MAX,
    Z_MIN,
    _kinds,
    rare_by_its_tail,
    rare_of_its_kind,
    thresholds,
)
from steadytrain.statistics.rolling_baseline import follow


def normal(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def threshold_at(values: np.ndarray, at: int) -> float:
    """The threshold at step ``at``, where something stands out."""
    values = values.copy()
    values[at - 1] = 50.0
    track = follow(Series(np.arange(1, len(values) + 1), values))
    rows = np.flatnonzero(track.z > Z_MIN)
    found = thresholds(track, rows, before=10.0)
    return float(found[track.steps[rows] == at][0])


def test_light_tails_give_little_more_than_the_floor_and_heavy_ones_much() -> None:
    draw = np.random.default_rng(0)
    light, heavy = draw.standard_normal(8192), draw.standard_t(3.0, 8192)
    for rare in (rare_by_its_tail, rare_of_its_kind):
        assert 4.0 < rare(light) < Z_MIN + 1.0
        assert rare(heavy) > 15.0


@pytest.mark.parametrize("size", [1.5, 300.0])
@pytest.mark.parametrize("rare", [rare_by_its_tail, rare_of_its_kind])
def test_a_threshold_scales_with_the_values(rare: Callable[[np.ndarray], float], size: float) -> None:
    z = np.random.default_rng(1).standard_t(4.0, 5000)
    assert rare(size * z) == pytest.approx(size * rare(z))


def test_all_the_same_is_no_tail() -> None:
    assert rare_by_its_tail(np.zeros(500)) == 0.0
    assert rare_of_its_kind(np.zeros(500)) < 15.0


@pytest.mark.parametrize(
    ("noise", "once_in_3e5"),
    [
        (lambda draw: draw.standard_t(5.0, 4096), 15.8 / 0.727),
        (lambda draw: draw.laplace(size=4096), 12.0 / 1.03),
        (lambda draw: draw.lognormal(0.0, 0.5, 4096) - 1.0, 8.6 / 0.5),
    ],
)
def test_a_kind_of_noise_is_recognised_by_its_values(
    noise: Callable[[np.random.Generator], np.ndarray], once_in_3e5: float
) -> None:
    values = noise(np.random.default_rng(2))
    scale = 1.4826 * np.median(np.abs(values - np.median(values)))
    assert rare_of_its_kind(values / scale) == pytest.approx(once_in_3e5, rel=0.25)


def test_few_values_leave_room_for_heavy_tails() -> None:
    many = normal(7, 8192)
    assert rare_of_its_kind(many[:256]) > rare_of_its_kind(many) + 0.5


def test_values_that_were_far_too_low_are_no_reason_to_expect_high_ones() -> None:
    quiet = normal(8, 4096)
    low = quiet.copy()
    low[::200] = -30.0
    assert rare_of_its_kind(low) < 1.5 * rare_of_its_kind(quiet)


def test_the_kinds_of_noise_are_distributions_of_the_same_size() -> None:
    beyond, logarithms = _kinds()
    assert (np.diff(beyond, axis=1) <= 0.0).all()
    assert np.exp(logarithms).sum(axis=1) == pytest.approx(1.0)
    edges = LOWEST + BIN * np.arange(beyond.shape[1])
    for kind in beyond:
        assert np.interp(0.0, edges, kind) == pytest.approx(0.5, abs=1e-6)
        inside = np.interp(-1 / 1.4826, edges, kind) - np.interp(1 / 1.4826, edges, kind)
        assert inside == pytest.approx(0.5, abs=2e-3)
    gaussian, student_3 = beyond[0], beyond[2 + FREEDOMS.index(3.0)]
    assert np.interp(3.0, edges, gaussian) == pytest.approx(1.35e-3, rel=0.01)
    # Of Student's t with 3 degrees 0.005 lie above 5.84, and half within 0.765.
    assert np.interp(5.84 / 0.765 / 1.4826, edges, student_3) == pytest.approx(0.005, rel=0.02)


def test_nothing_changes_before_there_are_enough_steps() -> None:
    assert threshold_at(normal(2, 600), 590) == 10.0
    assert threshold_at(normal(2, 6000), 5990) == pytest.approx(Z_MIN + 0.5, abs=0.5)


def test_what_comes_after_has_no_say() -> None:
    quiet = normal(3, 6000)
    wild = quiet.copy()
    wild[4100:] = 5.0 * np.random.default_rng(4).standard_t(3.0, 1900)
    assert threshold_at(quiet, 4000) == threshold_at(wild, 4000)


def test_a_fall_before_is_not_taken_for_a_tail() -> None:
    falling = normal(5, 4000) + 100.0 * np.exp(-np.arange(4000) / 200.0)
    assert threshold_at(falling, 3900) < 9.0


def test_there_is_a_ceiling() -> None:
    wild = np.random.default_rng(6).standard_cauchy(6000)
    assert threshold_at(wild, 5500) == Z_MAX
