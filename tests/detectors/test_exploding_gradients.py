from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from steadytrain.core.model import FloatArray, Window
from steadytrain.detectors.exploding_gradients import ExplodingGradients
from steadytrain.testing import healthy_loss, newest, steps

COUNT = 1200
AT = np.arange(COUNT)
NOISE = np.random.default_rng(1).standard_normal(COUNT)
USUAL = np.exp(0.4 * NOISE)
LOSS = healthy_loss(COUNT, decay_steps=200)
RISING = LOSS + np.where(AT > 700, (AT - 700) / 200, 0.0)
GROWS = USUAL * np.where(AT > 700, np.exp((AT - 700) / 120), 1.0)


def window(norms: FloatArray, loss: FloatArray = LOSS, stride: int = 1) -> Window:
    return steps(loss=loss[::stride], gradient_norm=norms[::stride], stride=stride)


def along(slope: float, *, last: float = 1.0) -> Window:
    norms: Mapping[str, Sequence[float]] = {
        f"h.{block}.weight": ((slope ** (7 - block) if block < 7 else last) * USUAL).tolist() for block in range(8)
    }
    return steps(gradient_norms=norms)


WITH_NAN = GROWS.copy()
WITH_NAN[::7] = np.nan
SPIKY = USUAL.copy()
SPIKY[800:804] *= 1000.0
SHIFTED = LOSS + np.where(AT > 800, 0.5, 0.0)

HEALTHY = (
    window(USUAL),
    window(np.where(AT < 400, 0.0, USUAL), np.where(AT < 400, 0.0, 0.01 * LOSS)),  # no reward, and so no gradient, yet
    window(GROWS),  # grows while the loss falls: the end of a schedule
    window(USUAL, RISING),  # not a matter of gradients
    window(SPIKY, SHIFTED),
    window(USUAL * (1.0 + AT / 100.0)),
    window(np.exp(1.2 * NOISE), RISING),  # heavy tails
    along(1.2),
    steps(gradient_norm=[1.0, 100.0, 1e4], loss=[1.0, 2.0, 3.0]),
)
SICK = (
    window(GROWS, RISING),
    window(WITH_NAN, RISING),
    window(np.where(AT > 800, 300.0, 1.0) * USUAL, RISING),
    window(GROWS, RISING, stride=5),
    along(3.0),
)


def test_quiet() -> None:
    assert [ExplodingGradients().check(sight) for sight in HEALTHY] == [()] * len(HEALTHY)


def test_growth_with_a_rising_loss() -> None:
    symptom = newest(ExplodingGradients(), SICK[0])
    assert symptom is not None
    assert 640 <= symptom.first_step <= 760
    assert symptom.last_step >= 1180
    assert symptom.numbers["loss_change_scales"] > 4


def test_a_hundredfold_level_is_critical() -> None:
    symptom = newest(ExplodingGradients(), SICK[2])
    assert symptom is not None
    assert symptom.severity == "critical"
    assert 800 <= symptom.first_step <= 816


@pytest.mark.parametrize("step", range(796, 812, 3))
def test_it_begins_at_the_step_and_not_at_its_block(step: int) -> None:
    """What is tried on a replay is tried at this step: the batch before it is innocent."""
    symptom = newest(ExplodingGradients(), window(np.where(step - 1 <= AT, 300.0, 1.0) * USUAL, RISING))
    assert symptom is not None
    assert symptom.first_step == step


@pytest.mark.parametrize(("left", "told"), [(1e-6, False), (1e-2, True)], ids=["converged", "on its way"])
def test_what_is_left_of_gradients_in_the_end_is_noise(left: float, told: bool) -> None:
    """A policy that always wins, a fit that is exact: its loss is noise too."""
    norms = np.where(AT > 800, 20.0, 1.0) * np.where(AT > 300, left, 1.0) * USUAL
    assert (newest(ExplodingGradients(), window(norms, RISING)) is not None) is told


def test_nan_among_them_hides_nothing() -> None:
    assert newest(ExplodingGradients(), SICK[1]) is not None


def test_along_the_depth() -> None:
    symptom = newest(ExplodingGradients(), along(3.0))
    assert symptom is not None
    assert symptom.tensors == ("h.0",)
    assert symptom.numbers["ratio"] == pytest.approx(3.0**7, rel=0.1)


def test_a_last_block_that_has_next_to_no_gradient_by_its_design() -> None:
    """The shift of a flow's last batch norm: the mean of its output is 0 whatever comes before."""
    assert newest(ExplodingGradients(), along(1.1, last=1e-6)) is None


def test_the_onset_stays_as_the_window_slides() -> None:
    whole = window(np.where(AT > 800, 300.0, 1.0) * USUAL, RISING)
    looks = [newest(ExplodingGradients(), whole.slice(start, start + 900)) for start in range(0, 300, 16)]
    assert len({symptom.first_step for symptom in looks if symptom is not None}) == 1
