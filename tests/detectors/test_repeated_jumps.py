from __future__ import annotations

import numpy as np

from steadytrain.detectors.repeated_jumps import RepeatedJumps
from steadytrain.testing import steps

DRAW = np.random.default_rng(6)
FALLS = (0.3 + 2.0 * np.exp(-np.arange(60) / 15.0)) * (1 + 0.05 * DRAW.standard_normal(60))


def with_jumps(*rows: int, to: float = 1.6) -> np.ndarray:
    values = FALLS.copy()
    values[list(rows)] = to
    return values


HEALTHY = (
    steps(loss=FALLS, stride=100),
    steps(loss=with_jumps(40), stride=100),
    steps(loss=with_jumps(30, 45), stride=1),
    steps(loss=with_jumps(30, 45), stride=100, first_step=50_000),
    steps(loss=with_jumps(30, 45, to=0.8), stride=100),
    steps(loss=FALLS * np.exp(DRAW.standard_normal(60)), stride=100),
    steps(loss=with_jumps(30, 45), stride=100, facts={"loss_may_rise": 1.0}),
)
SICK = (steps(loss=with_jumps(30, 45), stride=100), steps(loss=with_jumps(40, to=4.0), stride=100))


def test_the_jumps_are_counted() -> None:
    (symptom,) = RepeatedJumps().check(SICK[0])
    assert symptom.numbers["jumps"] == 2.0
    assert (symptom.first_step, symptom.last_step) == (3001, 4501)


def test_one_batch_of_one_sample_is_no_jump() -> None:
    noise = np.exp(np.random.default_rng(50).standard_normal(60))
    noisy = steps(loss=(1 + 2 * np.exp(-np.arange(60) / 15)) * noise, stride=50, first_step=50)
    assert RepeatedJumps(single_scales=3.5).check(noisy)
    assert RepeatedJumps().check(noisy) == ()
