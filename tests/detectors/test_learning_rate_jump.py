from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.learning_rate_jump import LearningRateJump
from steadytrain.testing import healthy_loss, newest, steps

FALLING = healthy_loss(200, decay_steps=60.0)
FLAT = 2.0 + 0.05 * np.random.default_rng(0).standard_normal(200)


def window(factor: float, loss: FloatArray, *, at: int = 60, until: int = 200, first: int = 1) -> Window:
    rate = np.full(200, 1e-3)
    rate[at - 1 :] *= factor
    return steps(learning_rate=rate[:until], loss=loss[:until], first_step=first)


RISEN = FLAT + np.where(np.arange(200) >= 60, 1.0, 0.0)
COSINE = np.tile(5e-4 * (1.001 + np.cos(np.linspace(0.0, np.pi, 50))), 4)

HEALTHY = (
    window(10.0, RISEN),  # the end of a constant warm-up
    window(50.0, FALLING),  # the same, steeper, and the loss falls
    window(0.01, RISEN),
    window(30.0, RISEN, until=64),  # too few losses after it
    steps(learning_rate=COSINE, loss=FLAT),  # restarts at a rate that was there before
    steps(learning_rate=np.linspace(0.0, 1e-3, 200), loss=FLAT),  # a warm-up from zero
    steps(learning_rate=np.full(200, 1e-3)),
    steps(loss=FLAT),
)
SICK = (
    window(30.0, RISEN),
    window(100.0, FLAT + 0.1 * (np.arange(200) > 60)),
    window(30.0, FLAT + (np.arange(200) > 6), at=6),
)


def test_a_loss_that_is_worse_after_the_jump_is_a_warning() -> None:
    symptom = newest(LearningRateJump(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 60)
    assert "from 0.001 to 0.03 at step 60" in symptom.message


def test_a_loss_that_falls_on_makes_it_a_note() -> None:
    symptom = newest(LearningRateJump(), HEALTHY[1])
    assert symptom is not None
    assert symptom.severity == "note"


@pytest.mark.parametrize("at", [6, 60, 150])
def test_it_is_told_within_eight_steps(at: int) -> None:
    loss = FLAT + np.where(np.arange(200) >= at, 1.0, 0.0)
    symptom = newest(LearningRateJump(), window(30.0, loss, at=at, until=at + 7))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", at)


def test_a_rate_that_restarts_where_it_was_is_none() -> None:
    assert LearningRateJump().check(HEALTHY[4]) == ()
