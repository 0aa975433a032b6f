from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from steadytrain.core.model import Symptom
from steadytrain.detectors.divergence import Divergence
from steadytrain.testing import healthy_loss, newest, steps

SIGMA = 0.04


def flat(count: int, seed: int = 0) -> np.ndarray:
    return healthy_loss(count, seed=seed, start=2.0, noise=SIGMA)


def shifted(count: int, at: int, rise: float, seed: int = 0) -> np.ndarray:
    """A flat loss that stands ``rise`` higher from step ``at`` on (numbered from 1)."""
    loss = flat(count, seed)
    loss[at - 1 :] += rise
    return loss


def with_bad(loss: np.ndarray, rows: Sequence[int], value: float) -> np.ndarray:
    loss = loss.copy()
    loss[list(rows)] = value
    return loss


START_UP = np.concatenate([np.linspace(6.9, 12.0, 5), np.linspace(12.0, 6.0, 5), healthy_loss(300, start=6.0)])
QUIET = {
    "no step": [],
    "flat": flat(1500),
    "falling": healthy_loss(2048),
    "falling fast at last": np.concatenate([flat(1500), np.linspace(2.0, 0.5, 300)]),
    "one spike": with_bad(flat(1500), [1480], 4.0),
    "NaN at the end": with_bad(flat(1500), range(1480, 1500), np.nan),
    "Inf at the end": with_bad(flat(1500), range(1480, 1500), np.inf),
    "a start-up transient of ten steps": START_UP,
    "no reference yet": shifted(200, 100, 0.3),
    "not in nats, noisy from the start": 1000 + 100 * np.random.default_rng(0).standard_normal(1500),
}

SICK = (steps(loss=shifted(1500, 1401, 5 * SIGMA)),)
HEALTHY = tuple(steps(loss=loss) for loss in QUIET.values())


@pytest.mark.parametrize("loss", QUIET.values(), ids=QUIET)
def test_quiet(loss: Sequence[float]) -> None:
    assert newest(Divergence(), steps(loss=loss)) is None


def test_quiet_without_a_loss_and_on_steps_that_were_not_applied() -> None:
    assert newest(Divergence(), steps(gradient_norm=flat(500))) is None
    high = range(1401, 1501)
    loss = shifted(1500, 1401, 5.0)
    assert newest(Divergence(), steps(loss=loss, skipped=high)) is None
    assert newest(Divergence(), steps(loss=loss, refused=high)) is None


@pytest.mark.parametrize("rise", [2 * SIGMA, 5 * SIGMA, 20 * SIGMA])
def test_a_level_shift_is_dated_near_its_onset(rise: float) -> None:
    symptom = newest(Divergence(), steps(loss=shifted(1500, 1401, rise)))
    assert symptom is not None
    assert (symptom.name, symptom.severity, symptom.last_step) == ("divergence", "warning", 1500)
    assert symptom.first_step == pytest.approx(1401, abs=12)
    assert symptom.numbers["alarm_step"] == pytest.approx(1401, abs=40)
    assert symptom.numbers["loss"] == pytest.approx(2.0 + rise, abs=0.1)


def test_exponential_growth_is_found_while_it_is_small() -> None:
    loss = flat(1600)
    loss[1500:] += SIGMA * (np.exp(np.arange(100) / 50) - 1)
    symptom = newest(Divergence(), steps(loss=loss))
    assert symptom is not None
    assert 1490 <= symptom.first_step <= 1580


def test_a_rise_by_more_than_a_nat_is_critical() -> None:
    late = np.concatenate([healthy_loss(1400), 3.5 + SIGMA * np.random.default_rng(1).standard_normal(30)])
    symptom = newest(Divergence(), steps(loss=late))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 1401)


def test_in_the_first_500_steps_the_statistic_raises_only_a_note() -> None:
    symptom = newest(Divergence(), steps(loss=shifted(480, 440, 0.3)))
    assert symptom is not None
    assert symptom.severity == "note"


ABOVE_START = np.concatenate([np.full(40, 4.0), np.linspace(4.0, 9.0, 60)])


def test_the_absolute_rule_holds_from_the_first_step() -> None:
    symptom = newest(Divergence(), steps(loss=ABOVE_START))
    assert symptom is not None
    assert (symptom.severity, symptom.last_step) == ("critical", 100)
    assert ABOVE_START[symptom.first_step - 2] <= 5.0 < ABOVE_START[symptom.first_step - 1]


def test_the_absolute_rule_needs_twenty_steps_and_the_start_of_the_run() -> None:
    assert newest(Divergence(), steps(loss=[4.0] * 40 + [9.0] * 19)) is None
    assert newest(Divergence(), steps(loss=[4.0] * 40 + [9.0] * 20)) is not None
    symptom = newest(Divergence(), steps(loss=ABOVE_START, first_step=700))
    assert symptom is not None
    assert (symptom.severity, symptom.numbers["reference_level"]) == ("warning", 4.0)  # above its lowest, no more


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_resets_nothing(value: float) -> None:
    broken = with_bad(ABOVE_START, range(60, 100, 3), value)
    clean, dirty = newest(Divergence(), steps(loss=ABOVE_START)), newest(Divergence(), steps(loss=broken))
    assert clean is not None
    assert dirty is not None
    assert dirty.severity == "critical"
    assert abs(dirty.first_step - clean.first_step) <= 1
    drifting = shifted(1500, 1401, 5 * SIGMA)
    symptom = newest(Divergence(), steps(loss=with_bad(drifting, range(1300, 1500, 3), value)))
    assert symptom is not None
    assert symptom.first_step == pytest.approx(1401, abs=12)


def slide(loss: np.ndarray, *, begin: int) -> list[Symptom]:
    """What a live loop would raise with looks every 16 steps at the newest 2,048."""
    found = []
    for end in range(begin, len(loss) + 1, 16):
        start = max(0, end - 2048)
        seen = Divergence().check(steps(loss=loss[start:end], first_step=start + 1))
        found += [symptom for symptom in seen if symptom.last_step > end - 64]
    return found


@pytest.mark.parametrize("at", [900, 3001, 3210])
@pytest.mark.parametrize("rise", [3 * SIGMA, 20 * SIGMA])
def test_a_lasting_fault_is_one_symptom_until_it_is_the_new_normal(at: int, rise: float) -> None:
    found = slide(shifted(at + 1900, at, rise, seed=at), begin=at - 500)
    assert len({symptom.first_step for symptom in found}) == 1
    last = [symptom.last_step for symptom in found]
    assert last == sorted(last)
    assert 400 <= last[-1] - at <= 1100


def test_an_alarm_that_becomes_critical_keeps_its_first_step() -> None:
    loss = flat(1100)
    loss[800:] += np.linspace(0.0, 2.5, 300)
    found = slide(loss, begin=700)
    assert {symptom.severity for symptom in found} == {"warning", "critical"}
    assert len({symptom.first_step for symptom in found}) == 1


def test_growth_without_end_does_not_raise_a_symptom_at_every_look() -> None:
    loss = flat(8000) + np.maximum(0.0, 0.002 * (np.arange(8000) - 3000.0))
    found = slide(loss, begin=2900)
    assert 1 <= len({symptom.first_step for symptom in found}) <= 12


def test_what_recovered_long_ago_is_told_of_a_whole_log() -> None:
    loss = np.concatenate([flat(900), flat(60, 1) + 0.3, flat(3000, 2), flat(100, 3) + 0.3, flat(900, 4)])
    symptoms = Divergence().check(steps(loss=loss))
    assert [symptom.first_step for symptom in symptoms] == [pytest.approx(901, abs=12), pytest.approx(3961, abs=12)]


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_that_ends_is_no_rise(seed: int) -> None:
    stages = [flat(700, 3 * seed + i) + 0.6 / (i + 1) + np.exp(-np.arange(700) / 80) for i in range(3)]
    assert Divergence().check(steps(loss=np.concatenate([*stages[:1], stages[1] - 0.6, stages[2] - 1.2]))) == ()


def test_the_first_loss_is_the_initial_one_where_training_blew_up_at_once() -> None:
    loss = np.concatenate([[3.5, 17.0], 40.0 + 5.0 * np.random.default_rng(0).standard_normal(200)])
    symptom = newest(Divergence(), steps(loss=loss))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 2)
    odd = np.concatenate([[3.0], flat(300) + 2.0])  # one easy batch, by a third below the others
    assert newest(Divergence(), steps(loss=odd)) is None


FALLING = 2.0 + 8.0 * np.exp(-np.arange(22) / 4.0) + 0.05 * np.random.default_rng(2).standard_normal(22)
SPARSE = {
    "above the start": (np.concatenate([np.linspace(4.0, 2.0, 22), np.linspace(3.5, 9.0, 8)]), "critical"),
    "three times the lowest": (np.concatenate([FALLING, 2.0 + np.linspace(0.5, 4.0, 8)]), "warning"),
}


@pytest.mark.parametrize("stride", [20, 100, 500])
@pytest.mark.parametrize("kind", SPARSE)
def test_thirty_points_are_enough(kind: str, stride: int) -> None:
    loss, severity = SPARSE[kind]
    symptom = newest(Divergence(), steps(loss=loss, first_step=stride, stride=stride))
    assert symptom is not None
    assert (symptom.severity, symptom.last_step) == (severity, 30 * stride)
    assert Divergence().check(steps(loss=loss[:22], first_step=stride, stride=stride)) == ()


def test_a_change_that_was_planned_is_a_note() -> None:
    loss = shifted(1500, 1401, 3 * SIGMA)
    rate = np.concatenate([np.linspace(1e-3, 1e-4, 1390), np.full(110, 5e-4)])
    tokens = np.concatenate([np.full(1400, 4096.0), np.full(100, 8192.0)])
    epoch = np.arange(1500) / 1400.0
    for name, change in {"learning_rate": rate, "tokens": tokens, "epoch": epoch}.items():
        (symptom,) = Divergence().check(steps(loss=loss, **{name: change}))
        assert symptom.severity == "note", name
    jump = np.concatenate([np.full(1390, 1e-4), np.full(110, 3e-3)])  # a rate that was never seen before
    (symptom,) = Divergence().check(steps(loss=loss, learning_rate=jump))
    assert symptom.severity == "warning"
    (symptom,) = Divergence().check(steps(loss=shifted(1500, 1401, 3.0), learning_rate=rate))
    assert symptom.severity == "critical"


def test_a_drift_that_is_over_is_not_told_as_one_that_goes_on() -> None:
    """The sum of a shift of a hundred steps alarms for about as long after it."""
    loss = shifted(1500, 1001, 0.8)
    loss[1100:] -= 0.8
    (symptom,) = Divergence().check(steps(loss=loss))
    assert symptom.last_step > 1110
    assert "drifted up from step 1001 on, to 2.8" in symptom.message
    assert symptom.message.endswith("again")
    (goes_on,) = Divergence().check(steps(loss=loss[:1100]))
    assert "drifts up since step 1001" in goes_on.message
