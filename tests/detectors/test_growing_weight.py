from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.growing_weight import GrowingWeight
from steadytrain.testing import healthy_loss, steps
from steadytrain.testing.windows import table

ROWS = 640
FALLING = healthy_loss(ROWS, decay_steps=80.0)
RISING = FALLING + np.maximum(0.0, np.linspace(-0.4, 0.8, ROWS))


def weighed(weights: Sequence[float] | Callable[[int], float], loss: FloatArray = RISING) -> Window:
    at = list(range(64, ROWS + 1, 64))
    values = [weights(step) for step in at] if callable(weights) else [*weights]
    rows = table("script", at=at, value={"term-weight:vae.py:40, term 2": values})
    return steps(loss=loss, tables={"script": rows})


SICK = (weighed(lambda step: step / 50), weighed(lambda step: 0.1 * 1.01**step))
NOTED = weighed(lambda step: step / 50, FALLING)
HEALTHY = (
    steps(loss=RISING),
    weighed(lambda step: 3.0),
    weighed(lambda step: step / 1000),  # a warm-up that has not ended
    weighed(lambda step: min(1.0, step / 300)),
    weighed(lambda step: min(4.0, step / 100)),
    weighed(lambda step: 2.0 + np.sin(step / 50)),
    NOTED,
)


@pytest.mark.parametrize("window", SICK)
def test_a_weight_without_a_bound_and_a_loss_that_rises(window: Window) -> None:
    (symptom,) = GrowingWeight().check(window)
    assert (symptom.severity, symptom.first_step) == ("warning", 64)
    assert symptom.message.startswith("the weight of term 2 of the loss of vae.py:40 grows all the time")
    assert symptom.numbers["lost_share"] > 0.1


def test_while_the_loss_falls_it_is_a_note() -> None:
    assert [one.severity for one in GrowingWeight().check(NOTED)] == ["note"]


def test_quiet() -> None:
    assert [GrowingWeight().check(window) for window in HEALTHY[:-1]] == [()] * (len(HEALTHY) - 1)


def test_it_is_said_after_five_readings() -> None:
    assert GrowingWeight().check(SICK[0].slice(0, 300)) == ()


def test_a_loss_that_stands_under_a_weight_that_grows_far() -> None:
    loss = np.concatenate([np.linspace(3.0, 1.0, 60), np.full(ROWS - 60, 1.0)])
    (far,) = GrowingWeight().check(weighed(lambda step: step / 50, loss))
    (near,) = GrowingWeight().check(weighed(lambda step: step / 200, loss))
    assert (far.severity, near.severity) == ("warning", "note")
