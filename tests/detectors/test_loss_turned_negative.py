from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import FloatArray
from steadytrain.detectors.loss_turned_negative import LossTurnedNegative
from steadytrain.testing import healthy_loss, newest, steps

FINE = healthy_loss(300, decay_steps=80.0)
NOISE = 0.1 * np.random.default_rng(0).standard_normal(300)


def turned(at: int) -> FloatArray:
    """The loss is maximised from step ``at`` on: its negative is recorded, and it grows."""
    late = np.maximum(np.arange(300) - at + 2, 0)
    return np.where(late > 0, -FINE * np.exp(late / 20.0), FINE)


LIKELIHOOD = 2.0 - 4.0 * (1.0 - np.exp(-np.arange(300) / 60.0)) + NOISE
RETURN = 3.0 * np.random.default_rng(1).standard_normal(300)

HEALTHY = (
    steps(loss=FINE),
    steps(loss=LIKELIHOOD),  # it falls through zero, slowly
    steps(loss=RETURN),  # both signs from the start
    steps(loss=-FINE),  # negative from the first step on
    steps(loss=turned(120)[:122]),  # two losses are too few
    steps(loss=np.where(np.arange(300) == 120, -1.0, FINE)),  # one odd value
    steps(gradient_norm=FINE),
)
SICK = (steps(loss=turned(120)), steps(loss=turned(10)[:40]), steps(loss=1e6 * turned(120)[:140]))


@pytest.mark.parametrize("at", [6, 30, 200])
def test_it_is_told_within_eight_steps(at: int) -> None:
    symptom = newest(LossTurnedNegative(), steps(loss=turned(at)[: at + 7]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", at)


def test_what_goes_on_is_critical() -> None:
    symptom = newest(LossTurnedNegative(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 120)
    assert "from step 120 on they are negative" in symptom.message


def test_a_likelihood_that_falls_through_zero_is_none() -> None:
    assert LossTurnedNegative().check(HEALTHY[1]) == ()
