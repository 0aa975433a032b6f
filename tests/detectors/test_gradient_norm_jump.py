from __future__ import annotations

import numpy as np

from steadytrain.detectors.gradient_norm_jump import GradientNormJump
from steadytrain.testing import steps

NORM = np.exp(0.3 * np.random.default_rng(3).standard_normal(60))
AT = np.arange(60)

HEALTHY = (
    steps(gradient_norm=[1.0, 1.0, 500.0, 1.0]),
    steps(gradient_norm=NORM),
    steps(gradient_norm=NORM * np.linspace(1.0, 5.0, 60)),
    steps(gradient_norm=np.where(AT == 40, 30.0, NORM)),
    steps(gradient_norm=np.where(AT == 0, 200.0, np.where(AT == 40, 150.0, NORM))),
    steps(gradient_norm=np.where(AT == 40, np.inf, NORM)),
    steps(gradient_norm=np.zeros(60)),
    steps(gradient_norm=NORM * np.linspace(1.0, 20.0, 60)),
    steps(gradient_norm=np.where(np.arange(900) == 700, 200.0, np.tile(NORM, 15))),
)
SICK = (
    steps(gradient_norm=[1.0, 1.2, 0.9, 300.0, 1.0]),
    steps(gradient_norm=np.where(AT >= 40, 20.0, 1.0) * NORM),
    steps(gradient_norm=np.where(AT == 40, 200.0, NORM), stride=50, first_step=50),
    steps(gradient_norm=0.5 * 1.35 ** AT[:30]),
)


def test_a_level_that_stays_is_told_from_a_single_row() -> None:
    (stays,) = GradientNormJump().check(SICK[1])
    assert (stays.first_step, stays.last_step) == (41, 60)
    (single,) = GradientNormJump().check(SICK[2])
    assert single.first_step == single.last_step == 2050


def test_a_norm_that_creeps_up_names_both_levels() -> None:
    (symptom,) = GradientNormJump().check(SICK[3])
    assert symptom.last_step == 30
    assert symptom.message.startswith("the gradient norm grows bit by bit from 1.95 to ")
