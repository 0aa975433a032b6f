from __future__ import annotations

import numpy as np

from steadytrain.core.model import Series, Window
from steadytrain.detectors.overfitting import Overfitting
from steadytrain.testing import steps

TRAIN = 2.5 * np.exp(-np.arange(300) / 60.0) + 0.05
AT = np.arange(10, 301, 10)
FOLLOWS = TRAIN[AT - 1] + 0.3 + 0.01 * np.random.default_rng(5).standard_normal(len(AT))
RISES = FOLLOWS + 0.1 * np.clip(np.arange(len(AT)) - 10, 0, None)


def window(values: np.ndarray, name: str = "val_loss", train: np.ndarray = TRAIN) -> Window:
    return steps(loss=train, metrics={name: Series(AT[: len(values)], values)})


HEALTHY = (
    window(FOLLOWS),
    window(FOLLOWS + 0.01 * np.clip(np.arange(len(AT)) - 20, 0, None)),
    window(RISES[:4]),
    window(RISES, name="val_kl"),
    window(RISES, train=np.concatenate([TRAIN[:100], TRAIN[100:] * np.linspace(1.0, 60.0, 200)])),
    steps(metrics={"val_loss": Series(AT, RISES)}),
)
SICK = (window(RISES), window(np.array([1.0, 0.9, 1.3, 1.7, 2.1, 2.6]), name="eval/loss"))


def test_it_is_dated_at_the_lowest_evaluation() -> None:
    (symptom,) = Overfitting().check(SICK[1])
    assert symptom.first_step == 20
    assert symptom.numbers["lowest"] == 0.9
