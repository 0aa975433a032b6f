from __future__ import annotations

import numpy as np
import pytest

from steadytrain.detectors.dead_signal import DeadSignal
from steadytrain.testing import steps

AT = np.arange(30)
FALL = 0.8 + 1.5 * np.exp(-AT / 3.0) + 0.02 * np.random.default_rng(6).standard_normal(30)
FLAT = 2.3 + 0.05 * np.random.default_rng(7).standard_normal(30)
NORM = np.exp(0.2 * np.random.default_rng(8).standard_normal(30))
LATE = AT >= 15
COSINE = 1e-3 * 0.5 * (1 + np.cos(np.pi * np.minimum(AT, 20) / 20))

HEALTHY = (
    steps(loss=FALL, gradient_norm=NORM, learning_rate=np.full(30, 1e-3)),
    steps(loss=np.round(np.exp(-AT / 2.0), 3)),  # three decimals
    steps(loss=np.where(LATE, 0.0, FALL), gradient_norm=np.where(LATE, np.nan, NORM)),  # nonfinite-loss
    steps(loss=np.zeros(30), facts={"loss_may_rise": 1.0}),  # GRPO begins at zero
    steps(loss=np.zeros(6)),
    steps(loss=np.where(AT == 29, 0.0, FALL)),
    steps(loss=2.3 * np.exp(-AT / 2.0), gradient_norm=2.0 * np.exp(-AT / 2.0)),
    steps(loss=0.3 + 0.4 * np.exp(-AT / 2.0), gradient_norm=np.exp(-AT / 3.0)),  # a convex problem has converged
    steps(loss=FALL, gradient_norm=np.where(AT == 20, 1e-9, NORM)),
    steps(loss=FALL, learning_rate=COSINE),
    steps(loss=FALL, learning_rate=np.zeros(30)),  # printed with too few decimals
    steps(loss=FLAT, learning_rate=np.where(AT < 6, 0.0, 1e-3)),
    steps(loss=FALL, learning_rate=np.where(LATE, 0.0, 1e-4)),  # also printed
    steps(loss=FLAT, learning_rate=np.zeros(30), first_step=9000),
)
SICK = (
    steps(loss=np.where(AT >= 8, 0.0, FALL)),
    steps(loss=np.zeros(12), stride=10, first_step=10),
    steps(loss=FALL, gradient_norm=np.where(LATE, 1e-8, NORM)),
    steps(loss=FALL, gradient_norm=np.where(LATE, 0.0, NORM)),
    steps(loss=FLAT, learning_rate=np.zeros(30)),
    steps(loss=np.where(LATE, 2.0, FALL) + FLAT / 100, learning_rate=np.where(LATE, 0.0, 5e-4)),
)


@pytest.mark.parametrize(
    ("number", "signal", "first_step"),
    [(0, "loss", 9), (1, "loss", 10), (2, "gradient_norm", 16), (4, "learning_rate", 1), (5, "learning_rate", 16)],
)
def test_the_signal_and_its_first_row(number: int, signal: str, first_step: int) -> None:
    (symptom,) = DeadSignal().check(SICK[number])
    assert symptom.signals == (signal,)
    assert symptom.first_step == first_step
    assert symptom.severity == "warning"
