from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadytrain.core.model import Series, Window
from steadytrain.detectors.lost_level import LostLevel
from steadytrain.testing import steps

NOISE = 0.02 * np.random.default_rng(0).standard_normal(200)
FALLS = 0.5 + 3.0 * np.exp(-np.arange(200) / 40.0)
AFTER = np.arange(200) >= 120
PHASE = np.abs((np.arange(200) / 50.0) % 1.0 * 2.0 - 1.0)
CYCLES = FALLS * (1 + NOISE) + 2.0 * (1.0 - PHASE) * (np.arange(200) > 50)
STAGES = np.repeat([0.0, 1.0], [120, 80])


def staged(window: Window) -> Window:
    return replace(window, metrics={"stage": Series(window.steps, STAGES)})


HEALTHY = (
    steps(loss=[3.0, 2.0, 1.5, 1.4]),
    steps(loss=[3.0, 2.0, 1.5, 1.4, 1.45], stride=60),
    steps(loss=[2.0, 2.1, 1.9, 2.05, 1.95], first_step=400),
    steps(loss=FALLS * (1 + NOISE)),
    steps(loss=2.0 + NOISE, first_step=5000, stride=50),
    steps(loss=np.where(np.arange(200) % 37 == 5, 3.0, 1.0) * FALLS),
    steps(loss=CYCLES, learning_rate=1e-3 * (1.1 - PHASE)),
    steps(loss=FALLS - 3.0 + NOISE),
    staged(steps(loss=FALLS * np.where(AFTER, 6.0, 1.0))),
    steps(loss=FALLS * np.where(AFTER, 6.0, 1.0), facts={"loss_may_rise": 1.0}),
    steps(loss=np.concatenate([[7.0, 9.0, 12.0, 15.0, 12.0, 9.0, 7.0], 2.0 * FALLS[:60]])),
    steps(gradient_norm=np.ones(60)),
    steps(loss=[0.0] * 16),
)
SICK = (
    steps(loss=[3.0, 2.0, 1.0, 4.0, 5.0], stride=500),
    steps(loss=[2.3, 3.0, 4.1, 6.0, 5.5, 7.0], stride=50),
    steps(loss=FALLS * np.where(AFTER, 4.0, 1.0) * (1 + NOISE)),
    steps(loss=FALLS + NOISE + np.where(AFTER, 2.5, 0.0), first_step=10, stride=10),
    steps(loss=(1.0 + NOISE[:90]) * np.exp(0.03 * np.clip(np.arange(90) - 10, 0, None)), first_step=700),
    steps(loss=np.where((np.arange(200) > 90) & (np.arange(200) < 150), 3.6, FALLS)),
)


def test_a_level_that_multiplies_at_the_end_is_dated_and_critical() -> None:
    (symptom,) = LostLevel().check(SICK[2])
    assert symptom.severity == "critical"
    assert 121 <= symptom.first_step <= 124
    assert symptom.last_step == 200


def test_five_rows_are_enough() -> None:
    (symptom,) = LostLevel().check(SICK[0])
    assert symptom.numbers["lowest"] == 1.0
    assert "above the 3 at which the log begins" in symptom.message


def test_a_stretch_that_came_back_is_a_warning() -> None:
    (symptom,) = LostLevel().check(SICK[5])
    assert symptom.severity == "warning"
    assert symptom.last_step < 160


def test_what_a_column_of_stages_explains_is_a_note() -> None:
    (symptom,) = LostLevel().check(HEALTHY[8])
    assert symptom.severity == "note"
    assert "stage changed there" in symptom.message


def test_a_rate_that_was_never_there_before_explains_nothing() -> None:
    rate = np.where(AFTER, 1e-1, 1e-3)
    (symptom,) = LostLevel().check(steps(loss=FALLS * np.where(AFTER, 4.0, 1.0), learning_rate=rate))
    assert symptom.severity == "critical"
