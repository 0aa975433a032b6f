from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors.loss_spike import LossSpike
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
    "a bump before there is a reference": loss_with({150: 1.0}, count=160),
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
    "an old one": ({1000: SPIKE}, 1000, 1000),
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


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({700: SPIKE, 900: SPIKE, 1190: SPIKE}, "note"),
        ({700: 0.6 * SPIKE, 900: 0.6 * SPIKE, 1190: SPIKE}, "note"),
        ({900: SPIKE, 1190: SPIKE}, "warning"),
        ({700: 0.3 * SPIKE, 900: 0.3 * SPIKE, 1190: SPIKE}, "warning"),
        ({700: 3.0, 900: 3.0, 1190: 3.0}, "warning"),
        ({700: SPIKE, 701: SPIKE, 900: SPIKE, 901: SPIKE, 1190: SPIKE}, "warning"),
        ({700: SPIKE, 900: SPIKE, 1190: SPIKE, 1191: SPIKE}, "warning"),
    ],
    ids=["rough", "half as high", "one earlier", "lower ones", "beyond rough", "they lasted", "it lasts"],
)
def test_single_steps_in_rough_data_are_notes(changes: dict[int, float], severity: str) -> None:
    symptom = newest(LossSpike(), steps(loss=loss_with(changes)))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == (severity, 1190)
    assert ("were back at once" in symptom.message) == (severity == "note")


def slide(loss: np.ndarray, *, every: int = 16, length: int = 2048) -> list[Symptom]:
    """What a live loop would raise: one look at the newest steps every few steps."""
    ends = range(every, len(loss) + 1, every)
    found = []
    for end in ends:
        seen = LossSpike().check(window_of(loss, max(0, end - length), end))
        found += [symptom for symptom in seen if symptom.last_step > end - 64]
    return found


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
    whole = LossSpike().check(window_of(loss, 0, len(loss)))
    assert {symptom.first_step for symptom in whole} == {symptom.first_step for symptom in found}


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


@pytest.mark.parametrize("z", [4.9, 0.0, -10.0, float("nan")])
def test_a_threshold_below_five_is_refused(z: float) -> None:
    with pytest.raises(ValueError, match="below 5"):
        LossSpike(z=z)


def noisy(kind: str, count: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    noise = {
        "skewed": lambda: draw.lognormal(0.0, 0.5, count),
        "heavy": lambda: 2.0 + 0.04 * draw.standard_t(3.0, count),
        "policy gradient": lambda: 0.05 * draw.standard_t(4.0, count),
    }[kind]
    values: np.ndarray = noise()
    return values


@pytest.mark.parametrize("kind", ["skewed", "heavy", "policy gradient"])
def test_the_tail_of_the_run_itself_sets_the_threshold(kind: str) -> None:
    raised = [LossSpike().check(steps(loss=noisy(kind, 20_000, seed))) for seed in range(3)]
    above = [symptom for symptoms in raised for symptom in symptoms if symptom.first_step > 4000]
    assert len(above) <= 2  # with z = 10 for ever: 12, 32 and 15


def test_a_quiet_run_lets_smaller_spikes_show() -> None:
    loss = healthy_loss(4000, start=2.0)
    loss[3500] += 8 * 0.04
    loss[600] += 8 * 0.04
    symptoms = LossSpike().check(steps(loss=loss))
    assert [symptom.first_step for symptom in symptoms] == [3501]
    assert symptoms[0].numbers["z_threshold"] == pytest.approx(5.5, abs=0.5)


def test_a_few_spikes_do_not_teach_the_run_that_spikes_are_normal() -> None:
    loss = healthy_loss(6000, start=2.0)
    at = list(range(1500, 6000, 450))
    loss[at] += SPIKE
    assert [symptom.first_step for symptom in LossSpike().check(steps(loss=loss))] == [step + 1 for step in at]


def test_a_restart_of_the_learning_rate_explains_it() -> None:
    loss = loss_with({1002: SPIKE})
    rate = np.concatenate([np.linspace(1e-3, 1e-4, 1000), np.linspace(1e-3, 1e-4, 200)])
    (symptom,) = LossSpike().check(steps(loss=loss, learning_rate=rate))
    assert symptom.severity == "note"
    assert "learning rate rose" in symptom.message


SPARSE = 1.5 + 2.0 * (1.0 + np.arange(40) / 3.0) ** -0.5 + 0.03 * np.random.default_rng(5).standard_normal(40)


@pytest.mark.parametrize("stride", [10, 100, 500])
@pytest.mark.parametrize("rows", [20, 30, 40])
def test_a_sparse_log_shows_a_spike_that_is_three_times_the_loss(stride: int, rows: int) -> None:
    loss = SPARSE[:rows].copy()
    assert LossSpike().check(steps(loss=loss, first_step=stride, stride=stride)) == ()
    loss[rows - 2] *= 3.0
    symptom = newest(LossSpike(), steps(loss=loss, first_step=stride, stride=stride))
    assert symptom is not None
    assert symptom.first_step == (rows - 1) * stride
    assert symptom.severity == ("warning" if symptom.last_step > 500 else "note")


def test_a_start_up_transient_of_a_sparse_log_is_none() -> None:
    loss = np.concatenate([[6.9, 16.8, 8.8, 6.6, 6.6, 7.4, 6.3, 6.2, 6.1, 6.0], SPARSE])
    assert LossSpike().check(steps(loss=loss)) == ()


def test_ten_times_everything_before_is_a_warning_from_the_start() -> None:
    symptom = newest(LossSpike(), steps(loss=[0.75, 0.7, 0.75, 0.73, 0.98, 0.76, 0.74, 29.6, 0.72, 0.83]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("warning", 8, 8)
