from __future__ import annotations

from dataclasses import replace

import numpy as np

from script_windows import looked
from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.second_moment_lag import SecondMomentLag
from steadytrain.testing import newest, steps
from steadytrain.testing.windows import table

NOISE = np.random.default_rng(0).standard_normal(2000)
FLAT = 2.0 + 0.04 * NOISE
AT = np.arange(1, 2001)
ONE = np.ones(2000)


def window(
    *rows: FloatArray, loss: FloatArray = FLAT, every: int = 1, names: tuple[str, ...] = ("wte.weight", "w.0", "w.1")
) -> Window:
    at = AT[every - 1 :: every]
    values = {name: row[at - 1].tolist() for name, row in zip(names, rows, strict=False)}
    return steps(loss=loss, tables={"tensors": table("tensors", at=at.tolist(), gradient_to_second_moment=values)})


def with_(first: int, last: int, level: float) -> FloatArray:
    row = 1.0 + 0.1 * NOISE
    row[first - 1 : last] = level
    return row


def jump(step: int, length: int = 60) -> FloatArray:
    loss = FLAT.copy()
    loss[step - 1 : step - 1 + length] += 1.5
    return loss


EARLY = window(ONE, with_(40, 100, 4.9), with_(50, 90, 3.0))

HEALTHY = (
    window(ONE, 1.0 + 0.1 * NOISE, ONE),
    window(ONE, ONE, with_(1000, 1003, 3.0)),
    window(with_(1000, 1100, 12.0), ONE, ONE),  # rows of rare tokens
    EARLY,
    window(ONE, with_(1000, 1100, 3.0), ONE),  # a lag that does nothing
    window(ONE, with_(1000, 1000, 6.0), ONE),  # one small tensor, once
    window(ONE, (1 - 0.99**AT) ** -0.5, (1 - 0.99**AT) ** -0.5),  # RMSprop begins its moment at 0
)
SICK = (
    window(ONE, with_(1000, 1004, 3.0), ONE, loss=jump(1007)),
    window(ONE, with_(1000, 1030, 6.0), with_(1000, 1030, 8.0)),
    window(ONE, with_(1000, 1200, 6.0), with_(1000, 1200, 8.0), every=50),
    window(ONE, with_(100, 130, 20.0), with_(100, 130, 20.0)),
)


def test_quiet() -> None:
    assert [SecondMomentLag().check(sight) for sight in (*HEALTHY[:3], *HEALTHY[5:])] == [()] * 5


def test_layers_that_wake_up_are_a_note() -> None:
    symptom = newest(SecondMomentLag(), EARLY)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("note", 40, 100)


def test_before_a_jump_of_the_loss() -> None:
    symptom = newest(SecondMomentLag(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 1000, ("w.0",))
    assert symptom.numbers["loss_jump_scales"] > 8
    assert "the loss jumped" in symptom.message


def test_a_jump_that_comes_back_is_a_note() -> None:
    spike = window(ONE, with_(1000, 1004, 3.0), ONE, loss=jump(1007, length=3))
    symptom = newest(SecondMomentLag(), spike)
    assert symptom is not None
    assert symptom.severity == "note"
    undecided = newest(SecondMomentLag(), SICK[0].slice(0, 1010))
    assert undecided is None or undecided.severity == "note"


def test_a_jump_before_it_is_not_its_doing() -> None:
    assert newest(SecondMomentLag(), window(ONE, with_(1000, 1004, 3.0), ONE, loss=jump(990, length=3))) is None


def test_a_loss_that_ends_in_nan_is_a_jump() -> None:
    loss = FLAT.copy()
    loss[1005:] = np.nan
    symptom = newest(SecondMomentLag(), window(ONE, with_(1000, 1004, 3.0), ONE, loss=loss))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.endswith(", and the loss was not finite after it")


def test_the_loss_of_a_policy_jumps_with_each_rollout() -> None:
    sick = SICK[0]
    policy = looked(policy_code__ppo_py=[1.0]).tables["script"]
    (symptom,) = SecondMomentLag().check(replace(sick, tables={**sick.tables, "script": policy}))
    assert symptom.severity == "note"
    (strong,) = SecondMomentLag().check(replace(SICK[1], tables={**SICK[1].tables, "script": policy}))
    assert strong.severity == "warning"
