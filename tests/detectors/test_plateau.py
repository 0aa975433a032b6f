from __future__ import annotations

import math

import numpy as np
import pytest

from steadytrain.detectors.plateau import Plateau
from steadytrain.testing import healthy_loss, steps

ROWS = 3000
POWER = 2.0 + 3.0 * (1.0 + np.arange(ROWS) / 100.0) ** -0.5 + 0.03 * np.random.default_rng(0).standard_normal(ROWS)
FLAT = healthy_loss(ROWS, decay_steps=60, seed=3)
HIGH = healthy_loss(ROWS, start=10.8, end=7.4, decay_steps=60)

HEALTHY = (
    steps(loss=POWER),
    steps(loss=FLAT),
    steps(loss=FLAT[:400]),
    steps(loss=HIGH),
    steps(loss=HIGH, learning_rate=np.linspace(1e-3, 0.0, ROWS), facts={"vocabulary": 50257.0}),
    steps(loss=FLAT, facts={"vocabulary": 50257.0}),
    steps(loss=FLAT, facts={"baseline_loss": 4.0}),
    steps(loss=np.abs(0.05 * np.random.default_rng(1).standard_t(4.0, ROWS))),
)
SICK = (
    steps(loss=HIGH, facts={"vocabulary": 50257.0}),
    steps(loss=healthy_loss(ROWS, start=2.3, end=2.15, decay_steps=60, seed=3), facts={"baseline_loss": math.log(10)}),
)


def test_a_loss_that_falls_ever_more_slowly_is_none() -> None:
    assert Plateau().check(HEALTHY[0]) == ()


def test_an_ordinary_end_is_a_note() -> None:
    (symptom,) = Plateau().check(HEALTHY[1])
    assert symptom.severity == "note"
    assert symptom.numbers["loss"] == pytest.approx(2.0, abs=0.02)
    assert symptom.first_step < 1500
    assert symptom.last_step == ROWS


def test_a_loss_that_learned_little_is_a_warning() -> None:
    (symptom,) = Plateau().check(SICK[0])
    assert symptom.severity == "warning"
    assert symptom.numbers["guess"] == pytest.approx(0.6 * math.log(50257))


def test_a_decayed_learning_rate_explains_it() -> None:
    assert Plateau().check(HEALTHY[4]) == ()


def test_the_plan_makes_the_stretch_longer() -> None:
    late = np.concatenate([POWER[:2000], np.full(900, 2.65) + 0.03 * np.random.default_rng(2).standard_normal(900)])
    assert len(Plateau().check(steps(loss=late))) == 1
    assert Plateau().check(steps(loss=late, facts={"planned_steps": 40_000.0})) == ()


def test_a_window_that_slides_along_does_not_raise_it_at_every_look() -> None:
    loss = healthy_loss(9000, start=2.0)
    names = {
        symptom.first_step
        for end in range(5000, 9000, 64)
        for symptom in Plateau().check(steps(loss=loss[end - 2048 : end], first_step=end - 2047))
    }
    assert len(names) <= 8


def test_where_the_fall_ended_is_its_name_at_every_look() -> None:
    loss = healthy_loss(2100, start=6.0, end=2.0, decay_steps=60, seed=3)
    names = {
        symptom.first_step
        for end in range(900, 2100, 16)
        for symptom in Plateau().check(steps(loss=loss[max(0, end - 2048) : end], first_step=max(0, end - 2048) + 1))
    }
    assert names == {320}


def test_a_loss_that_rose_meanwhile_stands_nowhere() -> None:
    rising = np.linspace(20.0, 36.0, 600) + 0.5 * np.random.default_rng(4).standard_normal(600)
    (symptom,) = Plateau().check(steps(loss=rising))
    assert symptom.message.startswith(f"the loss has not fallen since about step {symptom.first_step}, and its median")
    (level,) = Plateau().check(HEALTHY[1])
    assert level.message.startswith("the loss stands at 2")
