"""Thresholds from the run's own tail."""

from __future__ import annotations

import numpy as np
import pytest

from steadytrain.calibration import Z_MAX, Z_MIN, rare, thresholds
from steadytrain.model import Series
from steadytrain.reference import follow


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


def test_light_tails_give_the_floor_and_heavy_ones_more() -> None:
    draw = np.random.default_rng(0)
    light, is_light = rare(draw.standard_normal(8192))
    assert light < Z_MIN
    assert is_light
    heavy, is_light = rare(draw.standard_t(3.0, 8192))
    assert heavy > 15.0
    assert not is_light


@pytest.mark.parametrize("size", [0.01, 1.0, 300.0])
def test_a_threshold_scales_with_the_values(size: float) -> None:
    z = np.random.default_rng(1).standard_t(4.0, 5000)
    assert rare(size * z)[0] == pytest.approx(size * rare(z)[0])


def test_all_the_same_is_no_tail() -> None:
    assert rare(np.zeros(500)) == (0.0, True)


def test_nothing_changes_before_there_are_enough_steps() -> None:
    assert threshold_at(normal(2, 600), 590) == 10.0
    assert threshold_at(normal(2, 6000), 5990) == pytest.approx(Z_MIN, abs=0.5)


def test_what_comes_after_has_no_say() -> None:
    quiet = normal(3, 6000)
    wild = quiet.copy()
    wild[4100:] = 5.0 * np.random.default_rng(4).standard_t(3.0, 1900)
    assert threshold_at(quiet, 4000) == threshold_at(wild, 4000)


def test_a_fall_before_is_not_taken_for_a_tail() -> None:
    falling = normal(5, 4000) + 100.0 * np.exp(-np.arange(4000) / 200.0)
    assert threshold_at(falling, 3900) < 8.0


def test_there_is_a_ceiling() -> None:
    wild = np.random.default_rng(6).standard_cauchy(6000)
    assert threshold_at(wild, 5500) == Z_MAX
