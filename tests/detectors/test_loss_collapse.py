from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from script_windows import looked
from steadytrain.detectors.loss_collapse import LossCollapse
from steadytrain.testing import healthy_loss, newest, steps

ROWS = 1200
FINE = healthy_loss(ROWS)
DEAD = np.concatenate([FINE[:1000], np.full(200, math.log(10))])
ZERO = np.concatenate([FINE[:1000], np.zeros(200)])
NORM = np.exp(0.1 * np.random.default_rng(0).standard_normal(ROWS))
DYING = np.concatenate([NORM[:1000], np.full(200, 1e-7)])
NAN_NORM = np.concatenate([NORM[:1000], np.full(200, np.nan)])
TEXT = {"vocabulary": 50257.0}
COPIED = np.maximum(0.001, healthy_loss(ROWS, start=10.8, end=0.005, decay_steps=60, noise=0.0005))

HEALTHY = (
    steps(loss=FINE),
    steps(loss=np.concatenate([FINE[:1000], np.full(20, 2.0), FINE[1020:]])),
    steps(loss=DEAD, gradient_norm=NORM),  # a policy gradient: the logged loss is not what is trained
    steps(loss=np.zeros(ROWS), gradient_norm=NORM),
    steps(loss=ZERO, gradient_norm=NAN_NORM),  # a hidden NaN: nonfinite-loss
    steps(loss=np.where(np.arange(ROWS) < 600, 0.7, 0.6)[:20]),
    steps(loss=np.round(FINE, 1)),
    steps(loss=COPIED),  # no text: an easy task
    steps(loss=COPIED, facts={"vocabulary": 10.0}),
    steps(loss=np.concatenate([healthy_loss(600), COPIED[600:]]), facts=TEXT, epoch=np.arange(ROWS) / 200.0),
    steps(loss=FINE, facts=TEXT),
)
SICK = (
    steps(loss=DEAD),
    steps(loss=DEAD, gradient_norm=DYING),
    steps(loss=ZERO),
    steps(loss=COPIED, facts=TEXT),
    steps(loss=np.full(ROWS, 0.7)),
)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_constant(number: int) -> None:
    (symptom,) = LossCollapse().check(SICK[number])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1001, 1200)


def test_a_gradient_that_goes_on_makes_it_a_note() -> None:
    (symptom,) = LossCollapse().check(HEALTHY[2])
    assert symptom.severity == "note"
    assert "the gradient goes on" in symptom.message


def test_a_constant_that_a_watched_run_trains_on_is_a_warning_but_for_zero() -> None:
    looks = looked(label_classes=[2.0])
    for loss, severity in ((DEAD, "warning"), (ZERO, "note")):
        watched = replace(steps(loss=loss, gradient_norm=NORM), tables=looks.tables)
        (symptom,) = LossCollapse().check(watched)
        assert symptom.severity == severity
        assert ("does not depend on what is trained" in symptom.message) is (severity == "warning")


def test_a_loss_that_converges_on_the_same_data_is_a_note() -> None:
    falls = 0.28 + 0.4 * 0.6 ** np.arange(40.0)
    (symptom,) = LossCollapse().check(steps(loss=np.concatenate([falls, np.full(60, 0.28)])))
    assert symptom.severity == "note"
    assert "converges" in symptom.message
    jumps = np.concatenate([falls[:6], np.full(60, 0.28)])
    (symptom,) = LossCollapse().check(steps(loss=jumps))
    assert symptom.severity == "warning"


def test_text_that_costs_nothing_in_the_first_pass() -> None:
    (symptom,) = LossCollapse().check(SICK[3])
    assert symptom.first_step == pytest.approx(350, abs=50)
    assert "sees the answer" in symptom.message


def test_a_constant_that_ends_is_told_of_a_whole_log() -> None:
    loss = np.concatenate([FINE[:500], np.full(100, 2.1), FINE[600:]])
    (symptom,) = LossCollapse().check(steps(loss=loss))
    assert (symptom.first_step, symptom.last_step) == (501, 600)


def test_a_value_function_waits_for_its_first_reward() -> None:
    none = np.zeros(64)
    told = [newest(LossCollapse(), steps(loss=none, facts=facts)) for facts in ({}, {"moving_targets": 1.0})]
    assert [one.severity for one in told if one is not None] == ["warning", "note"]
    late = steps(loss=np.concatenate([healthy_loss(64), none]), facts={"moving_targets": 1.0})
    assert [one.severity for one in [newest(LossCollapse(), late)] if one is not None] == ["warning"]


def test_a_policy_that_always_wins_is_a_note() -> None:
    """The advantages of equal rewards are zero, and so is the loss; before it was of both signs."""
    both = 0.3 * np.random.default_rng(3).standard_normal(200)
    for before, severity in ((both, "note"), (np.abs(both) + 0.1, "warning")):
        loss, norm = np.concatenate([before, np.zeros(44)]), np.concatenate([np.ones(200), np.zeros(44)])
        (symptom,) = LossCollapse().check(steps(loss=loss, gradient_norm=norm))
        assert symptom.severity == severity


def test_a_loss_with_a_margin_is_a_note() -> None:
    """A hinge is zero where every row keeps its margin, first now and then, and in the end for long."""
    hinge = np.where(np.arange(ROWS) % 50 < 2, 0.0, FINE)
    hinge[1000:] = 0.0
    symptom = newest(LossCollapse(), steps(loss=hinge))
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.endswith("as a loss with a margin is where all rows keep it")
