from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from script_windows import looked
from steadytrain.core.model import FloatArray
from steadytrain.detectors.lost_progress import LostProgress
from steadytrain.grouping import classified
from steadytrain.testing import healthy_loss, steps

FINE = healthy_loss(400, decay_steps=80.0)
WANDERING = 0.5 + 0.2 * np.random.default_rng(1).standard_normal(400)


def raised(loss: FloatArray, at: int, by: FloatArray | float, *, until: int | None = None) -> FloatArray:
    """``loss`` with ``by`` added from step ``at`` on, up to and without ``until``."""
    sick = loss.copy()
    sick[at - 1 : None if until is None else until - 1] += by
    return sick


PEAK = raised(FINE, 120, 8.0 * np.exp(-np.arange(281) / 10.0) + 1.5)
EXPLODING = raised(FINE, 120, np.minimum(np.exp(np.arange(281) / 10.0) - 1.0, 1e6))

HEALTHY = (
    steps(loss=FINE),
    steps(loss=FINE[:6]),
    steps(loss=WANDERING),
    steps(loss=-FINE),  # it rises for ever, and slowly: a loss that is a return
    steps(loss=FINE + np.linspace(0.0, 1.0, 400)),  # an annealed term
    steps(loss=np.full(400, 2.0)),
    steps(loss=FINE, first_step=5_000),
    steps(gradient_norm=FINE),
    steps(loss=np.concatenate([healthy_loss(2_000), 4.0 + np.zeros(200)]), first_step=9_000),  # it has slid
)
SICK = (
    steps(loss=PEAK[:200]),
    steps(loss=EXPLODING),
    steps(loss=raised(FINE, 20, 2.0)),
    steps(loss=raised(FINE - 10.0, 120, 1.5)),
    steps(loss=1e-6 * raised(FINE, 120, 1.5)),
)
SPIKE = steps(loss=raised(FINE, 120, 1.2, until=125))
TALL_SPIKE = steps(loss=raised(FINE, 120, 6.0, until=128))


def test_a_rate_a_hundred_times_too_high_at_step_120_of_200() -> None:
    (symptom,) = LostProgress().check(SICK[0])
    assert (symptom.severity, symptom.first_step, symptom.last_step) == ("critical", 120, 200)
    assert symptom.numbers["alarm_step"] <= 132
    assert "loses" in symptom.message


@pytest.mark.parametrize("at", [20, 60, 120, 300])
@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e6])
def test_what_stays_is_a_warning_within_sixteen_steps(at: int, scale: float) -> None:
    (symptom,) = LostProgress().check(steps(loss=scale * raised(FINE, at, 3.0)[: at + 15]))
    assert (symptom.severity, symptom.first_step) == ("warning", at)


def test_what_comes_back_in_a_few_steps_is_a_note() -> None:
    (symptom,) = LostProgress().check(SPIKE)
    assert symptom.severity == "note"
    assert 118 <= symptom.first_step <= symptom.last_step <= 130


OTHER_DATA = raised(FINE, 240, 0.4 * (FINE[0] - FINE[-1]) * np.exp(-np.arange(161) / 40.0))


def test_a_third_of_the_progress_that_is_lost_at_once_for_some_steps_is_a_note() -> None:
    (symptom,) = LostProgress().check(steps(loss=OTHER_DATA))
    assert (symptom.severity, symptom.first_step) == ("note", 240)
    assert 0.3 < symptom.numbers["lost_share"] < 0.45


@pytest.mark.parametrize("rows", [30, 60])
def test_the_same_rise_little_by_little_is_none(rows: int) -> None:
    ramp = np.minimum(1.0, np.arange(161) / rows) * np.exp(-np.maximum(np.arange(161) - rows, 0) / 40.0)
    assert LostProgress().check(steps(loss=raised(FINE, 240, 0.4 * (FINE[0] - FINE[-1]) * ramp))) == ()


def test_its_share_is_that_of_the_peak() -> None:
    (symptom,) = LostProgress().check(SPIKE)
    assert 0.7 < symptom.numbers["lost_share"] < 0.9
    assert "which loses 80% of the progress so far" in symptom.message
    assert "it was back at step 127" in symptom.message


def test_a_spike_that_undoes_all_progress_is_a_warning_though_it_comes_back() -> None:
    (symptom,) = LostProgress().check(TALL_SPIKE)
    assert symptom.severity == "warning"


def test_spikes_that_come_again_and_again_are_a_warning_with_their_count() -> None:
    loss = FINE.copy()
    for at in (120, 160, 200, 240):
        loss = raised(loss, at, 1.5, until=at + 5)
    severities = [symptom.severity for symptom in LostProgress().check(steps(loss=loss))]
    messages = [symptom.message for symptom in LostProgress().check(steps(loss=loss))]
    assert severities == ["note", "note", "note", "warning"]
    assert "came back 4 times in" in messages[-1]


def test_a_loss_that_was_reweighted_is_a_note() -> None:
    rng = np.random.default_rng(3)
    factor = np.where(np.arange(400) < 199, 1.0, 5.0)
    norm = factor * (1.0 + 0.1 * rng.standard_normal(400))
    (symptom,) = LostProgress().check(steps(loss=factor * FINE, gradient_norm=norm))
    assert symptom.severity == "note"
    assert "grew at once by the same factor of about 4.9" in symptom.message


def test_a_gradient_norm_that_changes_with_it_is_evidence() -> None:
    rng = np.random.default_rng(4)
    loss = 3.0 * np.exp(-np.arange(60) / 8.0) + 1.0 + 0.2 * rng.standard_normal(60)
    loss[24:] = 2.9 + 0.2 * rng.standard_normal(36)
    norm = np.where(np.arange(60) < 24, 1.0, 0.1) * (1.0 + 0.1 * rng.standard_normal(60))
    alone, together = steps(loss=loss[:34]), steps(loss=loss[:34], gradient_norm=norm[:34])
    assert {symptom.severity for symptom in LostProgress().check(alone)} <= {"note"}
    assert [symptom.severity for symptom in LostProgress().check(together)] == ["warning"]


def test_what_stays_for_64_steps_and_costs_most_is_critical() -> None:
    sick = steps(loss=raised(FINE, 120, 1.5))
    severities = [LostProgress().check(sick.slice(0, stop))[0].severity for stop in (145, 175, 190, 400)]
    assert severities == ["warning", "warning", "critical", "critical"]


def test_its_first_step_is_the_same_in_every_window() -> None:
    sick = steps(loss=PEAK)
    assert {one.first_step for stop in range(130, 400, 9) for one in LostProgress().check(sick.slice(0, stop))} == {120}


def test_before_anything_was_learned_it_has_to_rise_far_above_the_start() -> None:
    early = np.full(60, 2.0) + 0.05 * np.random.default_rng(0).standard_normal(60)
    slow = LostProgress().check(steps(loss=raised(early, 8, np.linspace(0.0, 0.5, 53))))
    assert {symptom.severity for symptom in slow} <= {"note"}
    (symptom,) = LostProgress().check(steps(loss=raised(early, 8, 20.0)))
    assert symptom.severity in ("warning", "critical")
    assert "before anything was learned" in symptom.message


def test_a_rate_that_is_restarted_explains_it() -> None:
    rate = np.where(np.arange(400) < 100, 1.0, 0.01)
    rate[299:] = 1.0
    (symptom,) = LostProgress().check(steps(loss=raised(FINE, 300, 3.0), learning_rate=rate))
    assert symptom.severity == "note"
    assert "the learning rate rose" in symptom.message


def test_optimizers_that_take_turns_explain_even_what_is_critical() -> None:
    sick = SICK[0]
    alone, in_turn = sick, replace(sick, facts={"optimizers_in_turn": 2.0})
    assert classified(alone, LostProgress().check(alone)[0]).severity == "critical"
    assert classified(in_turn, LostProgress().check(in_turn)[0]).severity == "note"


def centred(end: float) -> FloatArray:
    """A loss that is about 0 at the start, falls to -1 within 50 steps, and is at ``end`` from step 80 on."""
    course = np.concatenate([-np.linspace(0.0, 1.0, 50), np.linspace(-1.0, end, 30), np.full(140, end)])
    return course + 0.03 * np.random.default_rng(3).standard_normal(220) * np.where(np.arange(220) < 80, 1.0, 0.1)


def test_the_loss_of_a_policy_may_lose_what_it_gained_but_not_explode() -> None:
    tables = looked(policy_code__ppo_py=[1.0]).tables
    (other_data,) = LostProgress().check(replace(SICK[2], tables=tables))
    assert other_data.severity == "note"
    assert "trains a policy" in other_data.message
    (exploded,) = LostProgress().check(replace(SICK[1], tables=tables))
    assert exploded.severity == "critical"


def test_the_loss_of_a_policy_comes_back_with_each_rollout() -> None:
    frequent = steps(loss=rollouts())
    assert any("came back 4 times" in one.message for one in LostProgress().check(frequent))
    policy = replace(frequent, tables=looked(policy_code__ppo_py=[1.0]).tables)
    assert {one.severity for one in LostProgress().check(policy)} == {"note"}


def rollouts() -> FloatArray:
    """It falls for 40 steps and then, every 40 steps, stands for 12 where it began."""
    loss = 1.0 + 2.0 * np.exp(-np.arange(260) / 12) + 0.02 * np.random.default_rng(5).standard_normal(260)
    for first in range(60, 260, 40):
        loss[first : first + 12] += 1.6
    return loss


def test_a_policy_loss_that_comes_back_to_zero_lost_nothing() -> None:
    """Advantages are centred: nothing is left to gain once every episode returns the same."""
    whole = steps(loss=centred(0.0))
    found = [one for stop in range(60, 221, 16) for one in LostProgress().check(whole.slice(0, stop))]
    assert {one.severity for one in found} <= {"note"}


def test_a_loss_that_began_at_zero_and_rises_far_above_it_lost_its_progress() -> None:
    (symptom,) = LostProgress().check(steps(loss=centred(1.5)))
    assert symptom.severity == "critical"


@pytest.mark.parametrize(
    ("first", "top", "told"), [(1e-8, 0.03, False), (1e-8, 5.0, True), (1e-3, 0.03, True)], ids=["zero", "far", "small"]
)
def test_a_loss_that_begins_at_zero(first: float, top: float, told: bool) -> None:
    """One update on each rollout: advantages sum to zero in a group, and what rises is the distance to a reference."""
    noise = 1.0 + 0.1 * np.random.default_rng(2).standard_normal(200)
    loss = np.concatenate([np.full(20, first), top * noise[20:]])
    symptoms = LostProgress().check(steps(loss=loss))
    assert symptoms
    assert any(one.severity != "note" for one in symptoms) is told


def test_most_of_the_progress_lost_slowly_is_a_warning_while_the_rate_grows() -> None:
    climb = np.concatenate([np.zeros(160), np.linspace(0.0, 1.6, 240)])
    growing = np.linspace(1e-4, 4e-3, 400)
    up_and_down = np.concatenate([growing[:300], growing[300:200:-1]])
    (found,) = LostProgress().check(steps(loss=FINE + climb, learning_rate=growing))
    assert found.severity == "warning"
    assert "; the learning rate grew all the while, from 0.00" in found.message
    for rates in (np.full(400, 1e-3), growing[::-1], up_and_down):
        assert all(
            one.severity == "note" for one in LostProgress().check(steps(loss=FINE + climb, learning_rate=rates))
        )
    assert not LostProgress().check(steps(loss=FINE, learning_rate=growing))
