from __future__ import annotations

import numpy as np
import pytest

from steadytrain.detectors.oscillation import Oscillation
from steadytrain.testing import healthy_loss, steps

ROWS = 1600
FLAT = healthy_loss(ROWS, start=2.0)


def swinging(period: float, *, start: int = 1200, amplitude: float = 0.2) -> np.ndarray:
    """The loss swings from ``start`` on with five times its noise."""
    loss = FLAT.copy()
    loss[start:] += amplitude * np.cos(2 * np.pi * np.arange(ROWS - start) / period)
    return loss


def noisier() -> np.ndarray:
    loss = FLAT.copy()
    loss[1200:] += 0.15 * np.random.default_rng(3).standard_normal(400)
    return loss


def wandering(share: float) -> np.ndarray:
    draw = np.random.default_rng(4).standard_normal(ROWS)
    values = np.zeros(ROWS)
    for i in range(1, ROWS):
        values[i] = share * values[i - 1] + draw[i]
    return 2.0 + 0.04 * values


RNG = np.random.default_rng(5)
HEALTHY = tuple(
    steps(loss=loss)
    for loss in (
        FLAT,
        healthy_loss(ROWS),
        noisier(),
        wandering(0.9),
        2.0 + 0.04 * RNG.standard_t(3.0, ROWS),
        RNG.lognormal(0.0, 0.5, ROWS),
        0.05 * RNG.standard_t(4.0, ROWS),
        np.full(ROWS, 0.7),
        swinging(2.0, start=100)[:500],
    )
)
SICK = (steps(loss=swinging(2.0)), steps(loss=swinging(7.0)))


@pytest.mark.parametrize("period", [2.0, 3.0, 7.0, 16.0])
def test_a_swing_is_found_and_its_period_told(period: float) -> None:
    symptom = Oscillation().check(steps(loss=swinging(period)))[0]
    assert symptom.severity == "warning"
    assert symptom.first_step == pytest.approx(1200, abs=64)
    assert symptom.last_step >= symptom.first_step + 63
    assert symptom.numbers["period_rows"] == pytest.approx(period, rel=0.1)


def test_a_jump_between_two_levels_is_not_a_swing_about_one() -> None:
    loss = FLAT.copy()
    loss[1200:] += 1.0
    assert Oscillation().check(steps(loss=loss)) == ()


def test_a_nan_changes_nothing() -> None:
    loss = swinging(7.0)
    loss[[1300, 1301, 1400]] = np.nan
    assert Oscillation().check(steps(loss=loss))[0].first_step == pytest.approx(1200, abs=64)
