from __future__ import annotations

import numpy as np

from steadytrain.detectors.negative_learning_rate import NegativeLearningRate
from steadytrain.testing import newest, steps

DECAY = (1e-3 * (1.0 - np.arange(60) / 40)).tolist()
HEALTHY = (
    steps(learning_rate=DECAY[:41]),
    steps(learning_rate=[1e-3] * 20 + [-1e-12] * 4),  # rounding
    steps(learning_rate=[-1e-3] * 20),  # meant
    steps(learning_rate=DECAY[:42]),  # a single step
    steps(),
)
SICK = (steps(learning_rate=DECAY),)


def test_quiet() -> None:
    assert [NegativeLearningRate().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_decay_without_a_floor() -> None:
    symptom = newest(NegativeLearningRate(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", 42, 60)
    assert "each update climbs the loss" in symptom.message
