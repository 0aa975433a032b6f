from __future__ import annotations

from dataclasses import replace

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


# -- what a watch reads of the script's own evaluations --------------------------------------------------------------

FALLING = np.array([2.3, 1.6, 1.0, 0.6, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.03, 0.02, 0.02])


def own(*values: float, training: np.ndarray = FALLING, name: str = "evaluation-loss") -> Window:
    count, at = len(values), 100 * np.arange(1, len(values) + 1)
    level = Series(np.concatenate([[1], at]), np.resize(training, count + 1))
    return steps(loss=TRAIN, metrics={name: Series(at, np.array(values)), "training-level": level})


RISES_AT_ONCE = (1.5, 1.6, 1.8, 1.9, 2.1, 2.2)
AS_A_GUESS = (2.31, 2.29, 2.33, 2.3, 2.28, 2.31)
RISES_FOR_LONG = (1.4, 1.1, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
OWN_SCALE, PART = "evaluation-loss (own scale)", "evaluation-loss (part) 2"


@pytest.mark.parametrize(
    ("seen", "told", "since"),
    [
        (own(*RISES_AT_ONCE), "rises since its first value, 1.5", 100),
        (own(*AS_A_GUESS), "never got below the 2.3 at which training began", 100),
        (own(*RISES_FOR_LONG), "rises since step 300, from 0.9, for 7 evaluations", 300),
        (own(*RISES_AT_ONCE, name=OWN_SCALE), "the two are not of one scale", 100),
    ],
)
def test_an_evaluation_of_the_script_that_gets_worse_is_a_warning(seen: Window, told: str, since: int) -> None:
    (symptom,) = ValidationGap().check(seen)
    assert (symptom.severity, symptom.first_step) == ("warning", since)
    assert told in symptom.message


@pytest.mark.parametrize(
    "seen",
    [
        own(*RISES_AT_ONCE[:4]),
        own(*RISES_AT_ONCE, name=PART),
        own(*RISES_AT_ONCE, training=FALLING[:7] + 2.0),
        own(*AS_A_GUESS, name=OWN_SCALE),
        own(*AS_A_GUESS, training=np.full(13, 2.3)),
        own(*RISES_FOR_LONG[:8]),
        own(1.4, 1.1, 0.9, 0.8, 0.7, 0.68, 0.69, 0.7, 0.72, 0.73, 0.75, 0.76),
        own(0.02, 0.021, 0.022, 0.025, 0.027, 0.03),
        own(*(0.1 * FALLING)),
        own(1.2, 1.21, 1.19, 1.22, 1.2, 1.21, 1.2),
        own(*[2.5] * 8),
        own(40.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.5),
    ],
    ids=[
        "few",
        "part",
        "flat",
        "scale",
        "same",
        "short",
        "usual",
        "low",
        "better-than-training",
        "flattens",
        "baseline",
        "falls",
    ],
)
def test_a_usual_course_of_an_evaluation_of_the_script_is_silent(seen: Window) -> None:
    assert ValidationGap().check(seen) == ()


def test_evaluations_of_a_gan_are_not_judged() -> None:
    seen = own(*RISES_AT_ONCE)
    assert ValidationGap().check(replace(seen, facts={"optimizers_in_turn": 2.0})) == ()
