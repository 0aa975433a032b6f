from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from steadytrain.core.model import Window
from steadytrain.detectors.no_learning import NoLearning
from steadytrain.testing import healthy_loss, newest, steps
from steadytrain.testing.windows import table

ROWS = 1500
NOISE = 0.02 * np.random.default_rng(0).standard_normal(ROWS)
STUCK = math.log(10) + NOISE
WARMING = np.minimum(1.0, np.arange(ROWS) / 1400.0) * 1e-3


def ratios(value: float) -> dict[str, object]:
    return {
        "tensors": table("tensors", at=range(50, 1501, 50), update_ratio={"a": [value] * 30, "b": [2 * value] * 30})
    }


ALIVE = {"gradient_norm": [0.3] * ROWS, "learning_rate": [1e-3] * ROWS}
WAVE = 0.01 * np.random.default_rng(2).standard_normal(ROWS)
FALLING = math.log(10) - 2e-4 * np.arange(ROWS) + WAVE


def classified(
    count: int, loss: object, *, classes: float = 10.0, entropy: float | None = None, **signals: object
) -> Window:
    """The first ``count`` steps of a run whose loss was looked into."""
    rows = {"classes:train.py:7": [classes] * 3}
    if entropy is not None:
        rows["label-entropy:train.py:7"] = [entropy] * 3
    cut = {name: np.asarray(values)[:count] for name, values in {"loss": loss, **ALIVE, **signals}.items()}
    return steps(**cut, tables={"script": table("script", at=[1, 2, 3], value=rows)})


def squared(count: int, loss: object, *, variance: float = 1.0) -> Window:
    """The first ``count`` steps of a run with a squared error whose targets have this variance."""
    rows = {"target-variance:train.py:7": [variance] * 3}
    cut = {name: np.asarray(values)[:count] for name, values in {"loss": loss, **ALIVE}.items()}
    return steps(**cut, tables={"script": table("script", at=[1, 2, 3], value=rows)})


MEAN = squared(250, 1.0 + WAVE)
EARLY = classified(250, math.log(10) + WAVE)
NOTED = (
    classified(64, math.log(10) + WAVE),
    classified(250, math.log(2) + WAVE / 4, classes=2.0),  # a parity, or balanced classes that start late
    classified(250, math.log(10) + WAVE, learning_rate=WARMING),
    classified(250, 1.2 + WAVE / 4, entropy=1.2),  # the frequencies of imbalanced labels
    classified(48, [1.7320511] * ROWS),
)
HEALTHY = (
    *NOTED,
    squared(250, 0.9 + WAVE),
    squared(250, FALLING, variance=2.3),
    classified(48, math.log(10) + WAVE),
    classified(250, FALLING),
    classified(250, math.log(10) + 40 * WAVE),
    classified(250, math.log(10) + WAVE, learning_rate=np.zeros(ROWS)),
    classified(250, 250.0 + WAVE),  # a sum over the batch
    classified(100, [1.7320511] * ROWS, learning_rate=WARMING),
    classified(250, [1.75] * ROWS),  # a loss that half precision rounds
    classified(250, 2.29 - 1e-4 * np.arange(ROWS) + WAVE, entropy=2.29),  # few labels, which only look imbalanced
    classified(100, [0.0] * ROWS),  # advantages that sum to zero
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
    EARLY,
    classified(320, math.log(10) + 0.01 + 0.2 * np.exp(-np.arange(ROWS) / 40.0) + WAVE),  # from a bad initial output
    classified(250, 1.945 + WAVE, classes=7.0),
    classified(100, [1.7320511] * ROWS),
    steps(loss=STUCK),
    steps(loss=STUCK[:600], learning_rate=np.full(600, 1e-3)),
    steps(loss=6.1 + NOISE, facts={"baseline_loss": 6.15}),
    steps(loss=10.8 + NOISE, facts={"vocabulary": 50257.0}),
    steps(loss=healthy_loss(ROWS), tables=ratios(1e-7)),
    classified(100, [1.7320511] * ROWS, gradient_norm=np.zeros(ROWS)),
)


def test_a_discriminator_that_guesses_is_a_note() -> None:
    (symptom,) = NoLearning().check(replace(SICK[4], facts={**SICK[4].facts, "optimizers_in_turn": 2.0}))
    assert symptom.severity == "note"


def test_the_loss_of_a_guess() -> None:
    (symptom,) = NoLearning().check(SICK[4])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, ROWS)
    assert symptom.numbers["level"] == pytest.approx(math.log(10))


def test_a_loss_that_stands_still_elsewhere_is_a_note() -> None:
    (symptom,) = NoLearning().check(HEALTHY[len(NOTED) + 14])
    assert symptom.severity == "note"


def test_weights_that_do_not_move() -> None:
    (symptom,) = NoLearning().check(SICK[8])
    assert symptom.signals == ("tensors.update_ratio",)
    assert (symptom.first_step, symptom.last_step) == (50, 1500)


def test_weights_that_do_not_move_yet_are_a_note() -> None:
    rising = steps(loss=healthy_loss(ROWS), tables=ratios(1e-7), learning_rate=1e-9 * np.arange(1, ROWS + 1))
    (symptom,) = NoLearning().check(rising)
    assert symptom.severity == "note"
    assert symptom.message == "the weights hardly move: the median update is 1.5e-07 of its weight, the largest 2e-07"


@pytest.mark.parametrize(("head", "found"), [(1e-2, 0), (2e-7, 1)])
def test_a_frozen_body_under_a_head_that_learns_is_left_alone(head: float, found: int) -> None:
    values = {"body.a": [0.0] * 30, "body.b": [0.0] * 30, "head": [head] * 30}
    window = steps(
        loss=healthy_loss(ROWS), tables={"tensors": table("tensors", at=range(50, 1501, 50), update_ratio=values)}
    )
    assert len(NoLearning().check(window)) == found


@pytest.mark.parametrize(("at_first", "found"), [(0.01, 1), (0.0, 0)])
def test_a_loss_of_zero_is_told_by_another(at_first: float, found: int) -> None:
    """``loss-collapse`` has it, or waits for a first reward. The newest reading of the weights is older than that."""
    older = table("tensors", at=range(50, 1451, 50), update_ratio={"a": [0.0] * 29})
    window = steps(loss=[at_first] * 1490 + [0.01] * 10, tables={"tensors": older})
    assert len(NoLearning().check(window)) == found


def test_a_sparse_log() -> None:
    (symptom,) = NoLearning().check(steps(loss=STUCK[:60], first_step=1, stride=300))
    assert symptom.severity == "warning"


def test_the_guess_among_the_classes_of_the_loss() -> None:
    (symptom,) = NoLearning().check(EARLY)
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 1, 250)
    assert symptom.message == (
        "the loss of train.py:7 stays at 2.302 for 250 steps, within 2% of what a guess among 10 classes costs, 2.303"
    )


@pytest.mark.parametrize("window", NOTED)
def test_what_may_be_a_slow_start_is_a_note(window: Window) -> None:
    (symptom,) = NoLearning().check(window)
    assert (symptom.severity, symptom.first_step) == ("note", 1)


def test_others_are_left_alone() -> None:
    assert [NoLearning().check(window) for window in HEALTHY[len(NOTED) : len(NOTED) + 12]] == [()] * 12


def test_a_loss_that_is_constant_to_the_last_bit() -> None:
    (symptom,) = NoLearning().check(SICK[3])
    assert symptom.message == "the loss is 1.732051 to the last bit in 100 steps, though its gradient is not zero"


def test_a_squared_error_at_the_variance_of_its_targets() -> None:
    (symptom,) = NoLearning().check(MEAN)
    assert symptom.severity == "warning"
    assert "what the mean of the targets costs, 1" in symptom.message


@pytest.mark.parametrize(
    ("norms", "loss", "told"),
    [
        ([0.0] * 20, [2.4] * 20, True),
        ([0.0] * 12, [2.4] * 12, False),
        ([0.0] * 19 + [0.3], [2.4] * 20, False),
        ([0.0] * 20, [0.0] * 20, False),
    ],
    ids=["no gradient", "a few steps", "one gradient", "no loss yet: a policy without a reward"],
)
def test_a_gradient_that_is_exactly_zero_from_the_start(norms: list[float], loss: list[float], told: bool) -> None:
    found = newest(NoLearning(), steps(loss=loss, gradient_norm=norms))
    assert (found is not None and "exactly 0 in each of 20 steps" in found.message) is told
