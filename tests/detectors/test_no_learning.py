from __future__ import annotations

import math

import numpy as np
import pytest

from steadytrain.detectors.no_learning import NoLearning
from steadytrain.testing import healthy_loss, steps
from steadytrain.testing.windows import table

ROWS = 1500
NOISE = 0.02 * np.random.default_rng(0).standard_normal(ROWS)
STUCK = math.log(10) + NOISE
WARMING = np.minimum(1.0, np.arange(ROWS) / 1400.0) * 1e-3


def ratios(value: float) -> dict[str, object]:
    return {
        "tensors": table("tensors", at=range(50, 1501, 50), update_ratio={"a": [value] * 30, "b": [2 * value] * 30})
    }


HEALTHY = (
    steps(loss=healthy_loss(ROWS)),
    steps(loss=STUCK[:400]),  # too early to tell
    steps(loss=STUCK, learning_rate=WARMING),
    steps(loss=1.9 + NOISE),  # stands still, but at no one's guess: perhaps a model that was good already
    steps(loss=STUCK, first_step=9000),
    steps(loss=0.05 * np.random.default_rng(1).standard_t(4.0, ROWS)),
    steps(loss=healthy_loss(ROWS, start=math.log(10), end=1.9), facts={"baseline_loss": math.log(10)}),
    steps(loss=[None] * ROWS),
    steps(loss=healthy_loss(ROWS), tables=ratios(1e-3)),
    steps(loss=healthy_loss(ROWS), tables=ratios(1e-7), learning_rate=np.zeros(ROWS)),
    steps(loss=healthy_loss(ROWS), tables=ratios(0.0)),  # LBFGS: what moved the weights was not measured
)
SICK = (
    steps(loss=STUCK),
    steps(loss=STUCK[:600], learning_rate=np.full(600, 1e-3)),
    steps(loss=6.1 + NOISE, facts={"baseline_loss": 6.15}),
    steps(loss=10.8 + NOISE, facts={"vocabulary": 50257.0}),
    steps(loss=healthy_loss(ROWS), tables=ratios(1e-7)),
)


def test_the_loss_of_a_guess() -> None:
    (symptom,) = NoLearning().check(SICK[0])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, ROWS)
    assert symptom.numbers["level"] == pytest.approx(math.log(10))


def test_a_loss_that_stands_still_elsewhere_is_a_note() -> None:
    (symptom,) = NoLearning().check(HEALTHY[3])
    assert symptom.severity == "note"


def test_weights_that_do_not_move() -> None:
    (symptom,) = NoLearning().check(SICK[4])
    assert symptom.signals == ("tensors.update_ratio",)
    assert (symptom.first_step, symptom.last_step) == (50, 1500)


def test_a_sparse_log() -> None:
    (symptom,) = NoLearning().check(steps(loss=STUCK[:60], first_step=1, stride=300))
    assert symptom.severity == "warning"
