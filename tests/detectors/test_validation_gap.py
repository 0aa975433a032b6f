from __future__ import annotations

import numpy as np
import pytest

from steadytrain.core.model import Series, Window
from steadytrain.detectors.validation_gap import ValidationGap
from steadytrain.testing import healthy_loss, steps

ROWS, EVERY = 2000, 100
AT = np.arange(EVERY, ROWS, EVERY)
TRAIN = healthy_loss(ROWS)
NOISE = 0.01 * np.random.default_rng(0).standard_normal(len(AT))


def window(evaluated: np.ndarray, name: str = "eval_loss", train: np.ndarray = TRAIN) -> Window:
    return steps(loss=train, metrics={name: Series(AT[: len(evaluated)], evaluated)})


ALIKE = TRAIN[AT - 1] + 0.1 + NOISE
BETTER = 0.8 * TRAIN[AT - 1] + NOISE  # dropout in training
LEAKED = 0.3 * TRAIN[AT - 1] + NOISE
SLOW = healthy_loss(ROWS, decay_steps=1500)
OVERFIT = np.concatenate([SLOW[AT[:10] - 1], SLOW[AT[9] - 1] + 0.05 * np.arange(1, 10)])

HEALTHY = (
    window(ALIKE),
    window(BETTER),
    window(OVERFIT, train=SLOW),
    window(LEAKED[:2]),
    window(LEAKED, name="eval_runtime"),
    window(LEAKED, name="eval_easy_loss"),
    window(np.where(np.arange(len(AT)) == 9, LEAKED, ALIKE)),
    window(np.full(len(AT), 0.001), train=np.full(ROWS, 0.01)),
    window(np.full(len(AT), np.nan)),
    steps(metrics={"eval_loss": Series(AT, LEAKED)}),
)
SICK = (window(LEAKED), window(LEAKED, name="val/loss"))


def test_an_evaluation_that_is_too_good() -> None:
    (symptom,) = ValidationGap().check(SICK[0])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 100, 1900)
    assert symptom.numbers["evaluation_loss"] < 0.5 * symptom.numbers["training_loss"]


def test_overfitting_is_a_note() -> None:
    (symptom,) = ValidationGap().check(HEALTHY[2])
    assert (symptom.severity, symptom.first_step) == ("note", 1000)
    assert "overfitting" in symptom.message


def test_a_gap_that_opens_is_dated() -> None:
    symptom = ValidationGap().check(window(np.concatenate([ALIKE[:10], LEAKED[10:]])))[-1]
    assert symptom.first_step == pytest.approx(1100, abs=1)


def test_a_steep_fall_between_two_evaluations_is_no_leak() -> None:
    steep = 1.0 + 9.0 * np.exp(-np.arange(ROWS) / 80.0)
    assert ValidationGap().check(window(steep[AT - 1] * 0.9, train=steep)) == ()
