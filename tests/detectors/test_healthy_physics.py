"""What looks like trouble and is none: no detector of loss, norm or time raises more than a note.

Each is looked at as a whole log, and as a live window that slides along.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from steadytrain.core.model import Window
from steadytrain.grouping.catalog import detector_name, detectors
from steadytrain.testing import steps

ROWS = 4000
FAMILY = [
    detector
    for detector in detectors()
    if set(detector.needs) & {"loss", "gradient_norm", "step_s", "metrics"}
    and not any("." in need and not need.startswith("tensors.update_ratio") for need in detector.needs)
]


def noise(seed: int, scale: float = 0.04) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal(ROWS)


def norms(seed: int) -> np.ndarray:
    return np.exp(noise(seed, 0.15))


AT = np.arange(ROWS, dtype=np.float64)
POWER = 2.0 + 3.0 * (1.0 + AT / 100.0) ** -0.5


def scaler_search(seed: int) -> Window:
    """The scaler halves its scale at each of the first steps, and skips one step in 2,000 later."""
    search = [*range(1, 12), 2005]
    gradient = norms(seed)
    gradient[[step - 1 for step in search]] = np.inf
    return steps(
        loss=POWER + noise(seed),
        gradient_norm=gradient,
        loss_scale=np.where(AT < 12, 65536.0 * 0.5**AT, 32.0),
        skipped=search,
    )


def staircase(seed: int) -> Window:
    """Each epoch begins lower than the last one ended, and creeps up within."""
    epoch = AT / 1000.0
    loss = 2.5 - 0.35 * np.floor(epoch) + 0.02 * (epoch % 1.0) + noise(seed)
    return steps(loss=loss, gradient_norm=norms(seed), epoch=epoch)


def rewarming(seed: int) -> Window:
    """A cosine with restarts: the loss rises with the learning rate and falls with it."""
    phase = AT % 1500 / 1500.0
    rate = 1e-3 * (0.05 + 0.95 * 0.5 * (1.0 + np.cos(np.pi * phase)))
    loss = 2.0 + 2.0 * np.exp(-AT / 300.0) + 300.0 * (rate - 5e-5) + noise(seed)
    return steps(loss=loss, gradient_norm=norms(seed), learning_rate=rate)


def late_growth(seed: int) -> Window:
    rate = 1e-3 * (1.0 - AT / (ROWS + 10.0))
    return steps(loss=POWER + noise(seed), gradient_norm=norms(seed) * (1e-3 / rate) ** 0.5, learning_rate=rate)


def clipped_spikes(seed: int) -> Window:
    gradient = norms(seed)
    gradient[700::450] *= 25.0
    return steps(
        loss=POWER + noise(seed),
        gradient_norm=gradient,
        gradient_norm_applied=np.minimum(gradient, 1.0),
        clip_coefficient=np.minimum(1.0, 1.0 / gradient),
    )


def longer_sequences(seed: int) -> Window:
    """Sequences double: the loss steps up, the time of a step with it, then both stay."""
    longer = AT >= 2600
    return steps(
        loss=POWER + 0.15 * longer + noise(seed),
        gradient_norm=norms(seed),
        step_s=np.where(longer, 0.45, 0.2) * np.exp(noise(seed + 1, 0.05)),
        tokens=np.where(longer, 8192.0, 4096.0),
    )


def policy_gradient(seed: int) -> Window:
    draw = np.random.default_rng(seed)
    return steps(
        loss=0.05 * draw.standard_t(4.0, ROWS) + 0.00001 * AT,
        gradient_norm=np.exp(0.6 * draw.standard_normal(ROWS)),
    )


def constant_policy_loss(seed: int) -> Window:
    return steps(loss=np.zeros(ROWS), gradient_norm=norms(seed))


def decays_late(seed: int) -> Window:
    """A long stretch of a constant learning rate, then a decay that brings the loss down at once."""
    drop = 0.3 * np.clip((AT - 3000) / 300.0, 0.0, 1.0)
    return steps(
        loss=POWER - drop + noise(seed),
        gradient_norm=norms(seed),
        learning_rate=1e-3 * (1.0 - np.clip((AT - 3000) / 1000.0, 0.0, 0.95)),
    )


PHYSICS: tuple[Callable[[int], Window], ...] = (
    scaler_search,
    staircase,
    rewarming,
    late_growth,
    clipped_spikes,
    longer_sequences,
    policy_gradient,
    constant_policy_loss,
    decays_late,
)


@pytest.mark.parametrize("physics", PHYSICS, ids=lambda physics: physics.__name__)
def test_a_whole_log_raises_nothing(physics: Callable[[int], Window]) -> None:
    assert len(FAMILY) >= 12
    for seed in range(3):
        assert raised(physics(seed)) == []


@pytest.mark.parametrize("physics", PHYSICS, ids=lambda physics: physics.__name__)
def test_a_live_window_raises_nothing(physics: Callable[[int], Window]) -> None:
    window = physics(7)
    for end in range(200, ROWS + 1, 200):
        assert raised(window.slice(max(0, end - 2048), end)) == []


@pytest.mark.parametrize("physics", PHYSICS, ids=lambda physics: physics.__name__)
def test_a_log_of_every_tenth_step_raises_nothing(physics: Callable[[int], Window]) -> None:
    window = physics(8)
    rows = np.arange(9, ROWS, 10)
    thinned = Window(
        steps=window.steps[rows],
        time=window.time[rows],
        signals={name: values[rows] for name, values in window.signals.items()},
        present={name: there[rows] for name, there in window.present.items()},
        skipped=window.skipped[rows],
        refused=window.refused[rows],
    )
    assert raised(thinned) == []


def raised(window: Window) -> list[tuple[str, str, int]]:
    return [
        (detector_name(type(detector)), symptom.message, symptom.first_step)
        for detector in FAMILY
        for symptom in detector.check(window)
        if symptom.severity != "note"
    ]
