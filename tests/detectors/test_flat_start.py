from __future__ import annotations

import math

import numpy as np

from steadytrain.detectors.flat_start import FlatStart
from steadytrain.testing import steps

NOISE = 0.01 * np.random.default_rng(2).standard_normal(200)

HEALTHY = (
    steps(loss=[math.log(10)] * 7),
    steps(loss=math.log(10) + NOISE[:20]),
    steps(loss=math.log(10) + NOISE, first_step=9000),
    steps(loss=2.45 + NOISE),
    steps(loss=math.log(2) + NOISE[:12] / 10, epoch=np.arange(12) / 20.0),
    steps(loss=0.5 + math.log(10) * np.exp(-np.arange(200) / 50.0)),
    steps(loss=math.log(10) * np.linspace(1.0, 0.8, 200)),
    steps(loss=math.log(10) + NOISE, facts={"vocabulary": 50257.0}),
    steps(loss=math.log(10) + NOISE, facts={"loss_may_rise": 1.0}),
    steps(loss=math.log(10) + 40 * NOISE),
)
SICK = (
    steps(loss=math.log(10) + NOISE),
    steps(loss=math.log(50257) + NOISE[:10], stride=50),
    steps(loss=1.7 + NOISE, facts={"baseline_loss": 1.7}),
    steps(loss=[math.log(2)] * 6, epoch=np.arange(6.0)),
    steps(loss=math.log(2) + NOISE[:12] / 10, epoch=np.arange(12) / 4.0),
)


def test_it_names_the_number_of_classes() -> None:
    (symptom,) = FlatStart().check(SICK[0])
    assert "10 classes" in symptom.message
    assert symptom.numbers["level"] == math.log(10)
