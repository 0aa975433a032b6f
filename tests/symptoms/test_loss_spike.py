from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from steadytrain.model import Symptom, Window
from steadytrain.symptoms.loss_spike import LossSpike
from steadytrain.testing import healthy_loss, newest, steps

BASE = healthy_loss(1200, decay_steps=60)
SPIKE = 1.0  # nats: 25 standard deviations of the healthy loss


def loss_with(changes: dict[int, float], count: int = 1200) -> np.ndarray:
    """The healthy loss with something added at the given steps (numbered from 1)."""
    values = BASE[:count].copy()
    for step, change in changes.items():
        values[step - 1] += change
    return values


QUIET = {
    "no step": [],
    "healthy": BASE,
    "healthy and still falling": healthy_loss(1200),
    "a step down": loss_with(dict.fromkeys(range(900, 1201), -0.5)),
    "one low loss": loss_with({1190: -1.5}),
    "NaN": loss_with({1190: np.nan}),
    "Inf": loss_with({1190: np.inf}),
    "a small bump": loss_with({1190: 0.2}),
    "a spike before there is a reference": loss_with({150: 3.0}, count=160),
    "an old spike": loss_with({1000: SPIKE}),
    "constant": np.full(1200, 0.7),
}

SICK = (steps(loss=loss_with({1190: SPIKE})),)
HEALTHY = tuple(steps(loss=loss) for loss in QUIET.values())


@pytest.mark.parametrize("loss", QUIET.values(), ids=QUIET)
def test_quiet(loss: Sequence[float]) -> None:
    assert newest(LossSpike(), steps(loss=loss)) is None


def test_quiet_without_a_loss() -> None:
    assert newest(LossSpike(), steps(gradient_norm=BASE)) is None
    assert newest(LossSpike(), steps(loss=[None] * 300)) is None


def test_quiet_when_the_step_was_skipped_or_refused() -> None:
    loss = loss_with({1190: SPIKE})
    assert newest(LossSpike(), steps(loss=loss, skipped=[1190])) is None
    assert newest(LossSpike(), steps(loss=loss, refused=[1190])) is None


SPIKES = {
    "one step": ({1190: SPIKE}, 1190, 1190),
    "the newest step": ({1200: SPIKE}, 1200, 1200),
    "some in a row": (dict.fromkeys(range(1150, 1160), SPIKE), 1150, 1159),
    "persistent": (dict.fromkeys(range(1000, 1201), SPIKE), 1000, 1200),
    "oscillating": (dict.fromkeys(range(1100, 1200, 10), SPIKE), 1100, 1190),
    "two apart: the newer": ({1140: SPIKE, 1190: SPIKE}, 1190, 1190),
    "NaN after it": ({1190: SPIKE, 1191: np.nan}, 1190, 1190),
    "NaN before it": ({1189: np.nan, 1190: SPIKE}, 1190, 1190),
    "NaN inside it": ({1190: SPIKE, 1191: np.nan, 1192: SPIKE}, 1190, 1192),
    "NaN all over the reference": ({**dict.fromkeys(range(300, 1100, 7), np.nan), 1190: SPIKE}, 1190, 1190),
}


@pytest.mark.parametrize(("changes", "first", "last"), SPIKES.values(), ids=SPIKES)
def test_spike(changes: dict[int, float], first: int, last: int) -> None:
    symptom = newest(LossSpike(), steps(loss=loss_with(changes)))
    assert symptom is not None
    assert (symptom.name, symptom.severity) == ("loss-spike", "warning")
    assert (symptom.first_step, symptom.last_step) == (first, last)
    assert symptom.numbers["z"] > 10
    assert f"step {first}" in symptom.message


def test_in_the_first_500_steps_a_spike_is_a_note() -> None:
    symptom = newest(LossSpike(), steps(loss=loss_with({490: 3.0}, count=500)))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 490)


def slide(loss: np.ndarray, *, every: int = 16, length: int = 2048) -> list[Symptom]:
    """What a live loop would raise: one look at the newest steps every few steps."""
    ends = range(every, len(loss) + 1, every)
    looks = (newest(LossSpike(), window_of(loss, max(0, end - length), end)) for end in ends)
    return [symptom for symptom in looks if symptom is not None]


def window_of(loss: np.ndarray, start: int, end: int) -> Window:
    return steps(loss=loss[start:end], first_step=start + 1)


def test_no_spike_is_lost_between_two_looks_and_all_looks_agree() -> None:
    loss = np.concatenate([BASE, healthy_loss(3000, seed=1, start=2.0)])
    spikes = [1003, 2001, 2017, 2800, 3333, 4000]
    for step in spikes:
        loss[step - 1] += SPIKE
    found = slide(loss)
    assert {symptom.first_step for symptom in found} == {1003, 2001, 2800, 3333, 4000}  # 2017 is near enough to 2001
    assert {symptom.last_step for symptom in found if symptom.first_step == 2001} == {2001, 2017}


def test_a_persistent_fault_is_one_symptom_that_grows_and_ends() -> None:
    loss = np.concatenate([BASE, healthy_loss(4000, seed=1, start=2.0)])
    loss[3000:] += SPIKE
    found = slide(loss)
    assert {symptom.first_step for symptom in found} == {3001}
    assert max(symptom.last_step for symptom in found) - 3001 in range(400, 1050)


def test_a_log_that_kept_every_tenth_step_is_read_by_its_own_stride() -> None:
    symptom = newest(LossSpike(), steps(loss=loss_with({1190: SPIKE}), first_step=10, stride=10))
    assert symptom is not None
    assert symptom.first_step == 11900


@pytest.mark.parametrize("z", [5.9, 0.0, -10.0, float("nan")])
def test_a_threshold_below_six_is_refused(z: float) -> None:
    with pytest.raises(ValueError, match="below 6"):
        LossSpike(z=z)
