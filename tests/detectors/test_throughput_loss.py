from __future__ import annotations

import numpy as np

from steadytrain.core.model import Series, Window
from steadytrain.detectors.throughput_loss import ThroughputLoss
from steadytrain.testing import steps

NOISE = np.exp(0.08 * np.random.default_rng(5).standard_normal(40))
AT = np.arange(40)
LATE = AT >= 25


def speeds(values: np.ndarray, name: str = "tokens_per_second", **signals: np.ndarray) -> Window:
    return steps(loss=3.0 - AT / 40, metrics={name: Series(AT + 1, values)}, **signals)


HEALTHY = (
    steps(step_s=0.3 * NOISE),
    steps(step_s=0.3 * np.where(LATE, 2.0, 1.0) * NOISE),
    steps(step_s=0.3 * np.where(AT % 10 == 9, 9.0, 1.0) * NOISE),
    steps(step_s=0.3 * np.where(AT < 3, 20.0, 1.0) * NOISE),
    steps(step_s=0.3 * np.where((AT > 15) & (AT < 30), 9.0, 1.0) * NOISE),
    steps(step_s=0.003 * np.where(LATE, 9.0, 1.0) * NOISE),
    steps(step_s=[0.3] * 5 + [3.0] * 6),
    speeds(9e4 * NOISE),
    speeds(np.where(LATE, 1e4, 9e4), name="eval_samples_per_second"),
    speeds(np.where(LATE, 1e4, 9e4), name="tokens"),
    speeds(np.where(LATE, 9e4, 1e4) * NOISE),
)
SICK = (
    steps(step_s=0.3 * np.where(LATE, 8.0, 1.0) * NOISE),
    speeds(9e4 * np.where(LATE, 0.2, 1.0) * NOISE),
    speeds(np.where(LATE, 120.0, 900.0) * NOISE, name="fps"),
    speeds(np.where(LATE, 2.0, 9.0) * NOISE, name="it/s"),
)


def test_the_factor_is_told_with_its_first_row() -> None:
    (symptom,) = ThroughputLoss().check(SICK[1])
    assert (symptom.first_step, symptom.last_step) == (26, 40)
    assert 4.0 < symptom.numbers["ratio"] < 6.0
    assert "tokens_per_second says that a step takes" in symptom.message


def test_a_longer_sequence_explains_it() -> None:
    slower = 0.3 * np.where(LATE, 8.0, 1.0) * NOISE
    longer = {"seq_len": Series(AT + 1, np.where(LATE, 4096.0, 512.0))}
    assert ThroughputLoss().check(steps(step_s=slower, metrics=longer)) == ()
