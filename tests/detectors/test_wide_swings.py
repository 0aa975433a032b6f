from __future__ import annotations

import numpy as np

from steadytrain.detectors.wide_swings import WideSwings
from steadytrain.testing import steps

DRAW = np.random.default_rng(1)
SLOW = 2.0 * np.exp(0.6 * np.sin(np.linspace(0, 7 * np.pi, 80)))
WILD = np.concatenate([[2.0], 2.0 * np.exp(0.9 * (DRAW.standard_normal(59) + 0.8))])
PHASE = np.abs((np.arange(80) / 20.0) % 1.0 * 2.0 - 1.0)

HEALTHY = (
    steps(loss=[2.0, 3.0, 2.0, 3.0, 2.0]),
    steps(loss=5.0 * np.exp(-np.arange(80) / 20.0) * (1 + 0.03 * DRAW.standard_normal(80))),
    steps(loss=2.0 * (1 + 0.05 * DRAW.standard_normal(80))),
    steps(loss=5.0 * np.exp(-np.arange(80) / 30.0) * np.exp(DRAW.standard_normal(80))),
    steps(loss=np.exp(DRAW.standard_normal(80)), first_step=5000),
    steps(loss=2.0 + 2.0 * (1.0 - PHASE), learning_rate=1e-3 * (1.1 - PHASE)),
    steps(loss=SLOW, facts={"loss_may_rise": 1.0}),
    steps(loss=SLOW - 2.0),
)
SICK = (steps(loss=SLOW), steps(loss=SLOW, stride=50, first_step=50), steps(loss=WILD))


def test_slow_swings_are_counted() -> None:
    (symptom,) = WideSwings().check(SICK[0])
    assert "without net progress" in symptom.message
    assert (symptom.first_step, symptom.last_step) == (1, 80)


def test_wild_rows_above_the_first() -> None:
    (symptom,) = WideSwings().check(SICK[2])
    assert "from row to row" in symptom.message
