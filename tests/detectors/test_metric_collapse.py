from __future__ import annotations

import numpy as np

from steadytrain.core.model import Series, Window
from steadytrain.detectors.metric_collapse import MetricCollapse
from steadytrain.testing import steps

RISES = 0.9 - 0.8 * np.exp(-np.arange(30) / 6.0)
NOISE = 0.02 * np.random.default_rng(4).standard_normal(30)
LATE = np.arange(30) >= 20
AT = np.arange(1, 31)
TRAIN = 3.0 * np.exp(-np.arange(30) / 10.0)


def window(values: np.ndarray | list[float], name: str = "val_accuracy", **signals: np.ndarray) -> Window:
    metrics = {name: Series(AT[: len(values)], np.asarray(values, np.float64))}
    return steps(**{"epoch": AT.astype(np.float64), **signals}, metrics=metrics)


HEALTHY = (
    window(RISES + NOISE),
    window([0.98, 0.97, 0.98, 0.96, 0.975]),
    window(np.where(np.arange(30) == 20, 0.1, RISES)),
    window(np.where(LATE, 0.1, RISES), name="lr_scale"),
    window(np.where(LATE, 0.1, RISES), name="rewards/rejected"),
    window([900.0, 300.0, 150.0, 90.0, 70.0, 66.0], name="perplexity"),
    window(np.where(LATE, 2.0, 1.0 - RISES), name="val_loss", loss=TRAIN),
    window([0.3, 0.6, 0.2, 0.65, 0.2, 0.6, 0.25, 0.64, 0.2, 0.6, 0.2, 0.6], name="success_rate"),
    window(RISES + 5 * NOISE),
    window([0.1, np.nan, 0.5, 0.6, 0.7, 0.8]),
)
SICK = (
    window(np.where(LATE, 0.1, RISES) + NOISE),
    window([0.2, 0.6, 0.8, 0.1, 0.1]),
    window([900.0, 300.0, 150.0, 1000.0, 1200.0, 1300.0], name="train_perplexity"),
    window(100 * np.where(LATE, 0.1, RISES), name="episode_return_mean"),
    window(0.5 + 0.4 * np.sin(np.linspace(0, 8 * np.pi, 30)), name="f1"),
    window([0.3, 0.62, 0.22, 0.65, 0.2, 0.6, 0.25, 0.64, 0.21, 0.63, 0.24, 0.6]),
    window([0.1, 0.3, np.nan, np.nan, np.nan, np.nan], name="eval_loss"),
)


def test_the_direction_follows_from_the_name() -> None:
    (fallen,) = MetricCollapse().check(SICK[3])
    assert fallen.numbers["value"] < 20 < fallen.numbers["best"]
    assert fallen.signals == ("episode_return_mean",)
    (risen,) = MetricCollapse().check(SICK[2])
    assert risen.numbers["best"] == 150.0


def test_rows_that_are_not_finite_are_counted() -> None:
    (symptom,) = MetricCollapse().check(SICK[6])
    assert symptom.numbers["rows"] == 4.0
    assert symptom.first_step == 3
