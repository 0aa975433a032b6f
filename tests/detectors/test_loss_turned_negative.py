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

SUNK = 9.0 - 0.01 * np.exp(np.arange(300) / 18.0)
BOUNDED = 9.0 - 4e4 * (1.0 - np.exp(-np.arange(300) / 60.0))
STEADY = 9.0 - 200.0 * np.arange(300)
CRITIC = 0.02 - 900.0 / (1.0 + np.exp(-(np.arange(300) - 200) / 20.0))

PLUNGED = np.append(FINE[:38], [-0.7, -1.5, -12.1, -76.9, -402.0, -6e3, -7e7, np.nan])

HEALTHY = (
    steps(loss=BOUNDED),  # a likelihood of many values falls far, and slows down
    steps(loss=STEADY),  # it falls evenly
    steps(loss=CRITIC),  # an actor follows its critic down, faster at first
    steps(loss=SUNK[:200]),  # not far yet
    steps(loss=PLUNGED[:42]),  # not far yet
    steps(loss=FINE),
    steps(loss=LIKELIHOOD),  # it falls through zero, slowly
    steps(loss=RETURN),  # both signs from the start
    steps(loss=-FINE),  # negative from the first step on
    steps(loss=turned(120)[:122]),  # two losses are too few
    steps(loss=np.where(np.arange(300) == 120, -1.0, FINE)),  # one odd value
    steps(gradient_norm=FINE),
)
SICK = (
    steps(loss=turned(120)),
    steps(loss=turned(10)[:40]),
    steps(loss=1e6 * turned(120)[:140]),
    steps(loss=SUNK + NOISE),
    steps(loss=SUNK[:280] * (1 + NOISE[:280])),
)


@pytest.mark.parametrize("at", [6, 30, 200])
def test_it_is_told_within_eight_steps(at: int) -> None:
    symptom = newest(LossTurnedNegative(), steps(loss=turned(at)[: at + 7]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", at)


@pytest.mark.parametrize("rows", [44, 45, 46])
def test_a_plunge_is_told_after_some_steps(rows: int) -> None:
    symptom = newest(LossTurnedNegative(), steps(loss=PLUNGED[:rows]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.numbers["without_bound"]) == ("warning", 39, 1.0)


def test_what_goes_on_is_critical() -> None:
    symptom = newest(LossTurnedNegative(), steps(loss=turned(120)))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 120)
    assert "from step 120 on they are negative" in symptom.message


def test_a_likelihood_that_falls_through_zero_is_none() -> None:
    assert LossTurnedNegative().check(steps(loss=LIKELIHOOD)) == ()


def test_a_loss_that_sinks_faster_and_faster_has_no_bound() -> None:
    symptom = newest(LossTurnedNegative(), steps(loss=SUNK + NOISE))
    assert symptom is not None
    assert symptom.numbers["without_bound"] == 1.0
    assert "sinks without bound" in symptom.message
