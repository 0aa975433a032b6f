from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.gradient_norm_spike import GradientNormSpike
from steadytrain.testing import healthy_loss, steps

ROWS = 1500


def norms(factors: dict[int, float] | None = None, *, seed: int = 0, spread: float = 0.15) -> np.ndarray:
    """Lognormal norms around 1, multiplied at the given steps (numbered from 1)."""
    values: np.ndarray = np.exp(spread * np.random.default_rng(seed).standard_normal(ROWS))
    for step, factor in (factors or {}).items():
        values[step - 1] *= factor
    return values


LOSS = healthy_loss(ROWS, decay_steps=60)
MOVED = LOSS.copy()
MOVED[1301:1304] += 0.8

LATE = norms() * np.concatenate([np.ones(1000), (1.0 - np.arange(500) / 505.0) ** -0.5])
SKIPPED = norms(dict.fromkeys(range(2, 12), 1e4))

HEALTHY: tuple[Window, ...] = (
    steps(gradient_norm=norms(), loss=LOSS),
    steps(gradient_norm=norms({1302: 20.0}), loss=LOSS, clip_coefficient=np.minimum(1.0, 1.0 / norms({1302: 20.0}))),
    steps(gradient_norm=norms({1302: 20.0}), loss=LOSS),
    steps(gradient_norm=LATE, loss=LOSS, learning_rate=np.linspace(1e-3, 1e-5, ROWS)),
    steps(gradient_norm=SKIPPED, loss=LOSS, skipped=range(2, 12)),
    steps(gradient_norm=norms({1302: 0.001}), loss=LOSS),
    steps(gradient_norm=norms({1302: 2.5}, spread=0.01), loss=MOVED),
    steps(gradient_norm=np.zeros(ROWS), loss=LOSS),
    steps(gradient_norm=norms({1302: np.nan, 1303: np.inf}), loss=LOSS),
)
SICK = (
    steps(gradient_norm=norms({1302: 20.0, 1303: 8.0}), loss=MOVED),
    steps(gradient_norm=norms(dict.fromkeys(range(1302, 1340), 12.0)), loss=LOSS),
)


def test_the_loss_that_moved_with_it_makes_it_a_warning() -> None:
    (symptom,) = GradientNormSpike().check(SICK[0])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1302, 1303)
    assert "the loss moved with it" in symptom.message
    assert symptom.numbers["gradient_norm"] == pytest.approx(20.0, rel=0.5)


def test_a_spike_that_is_gone_at_once_is_a_note() -> None:
    (symptom,) = GradientNormSpike().check(HEALTHY[2])
    assert (symptom.severity, symptom.first_step) == ("note", 1302)


def test_one_that_lasts_is_a_warning() -> None:
    (symptom,) = GradientNormSpike().check(SICK[1])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1302, 1339)


def test_growth_that_takes_its_time_is_no_spike() -> None:
    assert GradientNormSpike().check(HEALTHY[3]) == ()


def test_a_window_that_slides_along_keeps_the_name() -> None:
    values = np.tile(norms(), 3)
    values[3000] *= 30.0
    loss = np.full(len(values), 2.0) + 0.04 * np.random.default_rng(1).standard_normal(len(values))
    loss[3000] += 1.0
    seen = {
        symptom.first_step
        for end in range(3008, 3060, 16)
        for symptom in GradientNormSpike().check(
            steps(gradient_norm=values[end - 2048 : end], loss=loss[end - 2048 : end], first_step=end - 2047)
        )
    }
    assert seen == {3001}
