"""What becomes of a symptom after its onset, and when a rise is no more than a note."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from story_windows import AFTER_1000, LOSS, Sees, changed, saw

from steadytrain.core.model import COPY_FOLLOWS, OWN_OUTPUTS, OWN_ROLLOUTS, FloatArray, Series, Severity, Window
from steadytrain.grouping import judge
from steadytrain.grouping.courses import course_of
from steadytrain.testing import healthy_loss, steps
from steadytrain.testing.windows import table

NOISE = 0.04
COURSES = {
    "recovered": ("recovered", [3.0] * 3),
    "recovering": ("recovering", 3.0 * np.exp(-np.arange(AFTER_1000) / 40)),
    "diverging": ("diverging", np.linspace(0.5, 6.0, AFTER_1000)),
    "level-shift": ("level-shift", np.full(AFTER_1000, 3 * NOISE)),
}


@pytest.mark.parametrize(("course", "change"), COURSES.values(), ids=COURSES)
def test_what_becomes_of_a_rise(course: str, change: list[float]) -> None:
    assert course_of(steps(loss=changed(1000, change)), saw()) == course


def shifted(**more: object) -> Window:
    return steps(loss=changed(1000, np.full(AFTER_1000, 3 * NOISE)), **more)  # type: ignore[arg-type]


def norms(change: float = 0.0, *, seed: int = 4) -> np.ndarray:
    """Gradient norms, from step 1000 on ``exp(change)`` times as large."""
    found = np.random.default_rng(seed).lognormal(0, 0.2, 1500)
    found[999:] *= np.exp(change)
    return found


def evaluations(*after: float) -> dict[str, Series]:
    before = [2.2, 2.1, 2.08, 2.1]
    at = [200, 400, 600, 800, *range(1040, 1040 + 100 * len(after), 100)]
    return {"eval_loss": Series(np.array(at), np.array([*before, *after]))}


def too_late() -> dict[str, Series]:
    return {"eval_loss": Series(np.array([200, 400, 1400]), np.full(3, 2.0))}


SHIFTS = {
    "gradients as before": (shifted(gradient_norm=norms()), "shift-of-data", "warning"),
    "gradients grew": (shifted(gradient_norm=norms(0.6)), "level-shift", "warning"),
    "evaluations as before": (shifted(gradient_norm=norms(), metrics=evaluations(2.09)), "shift-of-data", "note"),
    "evaluations worse": (shifted(gradient_norm=norms(), metrics=evaluations(2.4)), "damaged-weights", "warning"),
    "an evaluation that is not finite": (shifted(metrics=evaluations(float("nan"))), "damaged-weights", "warning"),
    "evaluations too late": (shifted(metrics=too_late()), "level-shift", "warning"),
}


@pytest.mark.parametrize(("window", "course", "severity"), SHIFTS.values(), ids=SHIFTS)
def test_what_a_new_level_is(window: Window, course: str, severity: str) -> None:
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert (symptom.course, symptom.severity) == (course, severity)
    assert ("evaluations did not move" in symptom.message) == (severity == "note")


def test_a_loss_above_guessing_that_stays_there_diverges() -> None:
    loss = changed(1000, np.full(AFTER_1000, 5.0))
    assert course_of(steps(loss=loss), saw(last=1100)) == "level-shift"
    assert course_of(steps(loss=loss, facts={"vocabulary": 256.0}), saw(last=1100)) == "diverging"
    assert course_of(steps(loss=loss, gradient_norm=norms(2.0)), saw(last=1100)) == "diverging"


def test_swinging_around_the_level_that_it_had() -> None:
    swing = 8 * NOISE * (-1.0) ** np.arange(AFTER_1000)
    assert course_of(steps(loss=changed(1000, swing)), saw(last=1200)) == "oscillating"
    noise = 4 * NOISE * np.random.default_rng(5).standard_normal(AFTER_1000)
    noise[0] = 1.0
    assert course_of(steps(loss=changed(1000, noise)), saw()) == "recovered"


def epochs(ends: list[int]) -> np.ndarray:
    """The epoch of each step, the first of one after another at ``ends``."""
    passed = np.searchsorted(ends, np.arange(1, 1501), side="right").astype(np.float64)
    return passed + np.linspace(0, 0.0001, 1500)


def test_a_step_where_an_epoch_ends_is_a_note() -> None:
    up = changed(1000, np.full(AFTER_1000, 3 * NOISE))
    (symptom,) = judge(steps(loss=up, epoch=epochs([500, 999])), [Sees((saw(),))]).symptoms
    assert (symptom.course, symptom.severity) == ("epoch-boundary", "note")
    assert "where an epoch ends" in symptom.message
    for ends in ([500, 980], [800, *range(950, 1500, 10)]):
        assert course_of(steps(loss=up, epoch=epochs(ends)), saw()) == "level-shift"


def test_what_stands_still_or_falls_has_no_course() -> None:
    window = steps(loss=LOSS)
    assert course_of(window, saw("plateau", 900, 1500)) is None
    fallen = changed(1000, np.full(AFTER_1000, -1.9))
    assert course_of(steps(loss=fallen), saw("loss-collapse", 1000, 1500)) is None


def test_a_fall_before_is_no_level() -> None:
    loss = healthy_loss(1500, decay_steps=1000, start=8.0)
    loss[999:] += 1.0
    assert course_of(steps(loss=loss), saw()) in ("level-shift", "shift-of-data")
    falling = healthy_loss(1500, decay_steps=1000, start=8.0)
    falling[999] += 3.0
    assert course_of(steps(loss=falling), saw()) == "recovered"


def test_rows_without_a_loss_do_not_hide_what_becomes_of_it() -> None:
    """Logs mix rows of evaluations and of the machine with those of training."""
    loss = changed(1000, [3.0] * 3)
    mixed: list[float | None] = [None] * (20 * len(loss))
    mixed[::20] = loss.tolist()
    first = 999 * 20 + 1
    assert course_of(steps(loss=mixed), saw(first=first, last=first + 40)) == "recovered"


def test_the_gradient_norm_is_judged_by_its_logarithm() -> None:
    spiked = norms()
    spiked[999:1003] *= 100
    symptom = saw("gradient-norm-spike", 1000, 1003, signals=("gradient_norm",))
    (judged,) = judge(steps(loss=LOSS, gradient_norm=spiked), [Sees((symptom,))]).symptoms
    assert judged.course == "recovered"


def test_it_is_too_early_to_tell_until_64_steps_have_passed() -> None:
    loss = changed(1000, [3.0] * 3)
    assert course_of(steps(loss=loss[:1062]), saw()) == "open"
    assert course_of(steps(loss=loss[:1063]), saw()) == "recovered"


def test_values_that_are_not_finite_and_refused_steps_do_not_count() -> None:
    loss = changed(1000, [3.0] * 3)
    loss[1005:1030:3] = np.nan
    loss[1030] = 1e30
    assert course_of(steps(loss=loss, refused=[1031]), saw()) == "recovered"


def test_other_signals_have_no_course() -> None:
    window = steps(loss=LOSS)
    assert course_of(window, saw(signals=("modules.zero_share",))) is None
    assert course_of(window, saw("nonfinite-loss")) is None
    assert course_of(window, saw(first=3)) is None


def restarting(*, at: int = 1000, high: float = 1e-3) -> np.ndarray:
    rate = np.linspace(1e-3, 1e-4, 1500)
    rate[at - 1 :] = high
    return rate


def test_a_restart_of_the_learning_rate_that_comes_back_down_is_a_note() -> None:
    window = steps(loss=changed(1000, [0.5] * 20), learning_rate=restarting())
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert (symptom.severity, symptom.course) == ("note", "learning-rate-restart")
    assert "learning rate goes up again" in symptom.message


def test_a_rate_that_was_never_there_before_is_no_restart() -> None:
    window = steps(loss=changed(1000, [0.5] * 20), learning_rate=restarting(high=3e-2))
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert (symptom.severity, symptom.course) == ("warning", "recovered")


def test_a_rise_that_stays_is_not_excused_by_a_restart() -> None:
    window = steps(loss=changed(1000, np.linspace(0.5, 6.0, AFTER_1000)), learning_rate=restarting())
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert (symptom.severity, symptom.course) == ("warning", "diverging")


def test_a_bump_after_a_resume_that_goes_away_is_a_note() -> None:
    window = replace(steps(loss=changed(1000, [0.5] * 20)), resumed=np.array([990]))
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert (symptom.severity, symptom.course) == ("note", "resume")


def test_a_clipped_spike_that_recovers_is_a_note() -> None:
    clip = np.ones(1500)
    clip[999] = 0.05
    window = steps(loss=changed(1000, [3.0]), clip_coefficient=clip)
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert symptom.severity == "note"
    assert "clipped" in symptom.message


def test_clipping_does_not_excuse_a_batch_of_another_kind() -> None:
    clip = np.ones(1500)
    clip[999] = 0.05
    window = steps(loss=changed(1000, [3000.0]), clip_coefficient=clip)
    far = replace(saw(), numbers={"z": 3000.0 / NOISE})
    (symptom,) = judge(window, [Sees((far,))]).symptoms
    assert (symptom.severity, symptom.course) == ("warning", "recovered")


@pytest.mark.parametrize(
    ("change", "course"),
    [
        (np.r_[np.full(64, 3 * NOISE), np.linspace(3 * NOISE, 60 * NOISE, 400)], "diverging"),
        (np.r_[np.full(8, 9 * NOISE), np.zeros(100), np.full(300, 3 * NOISE)], "level-shift"),
        (np.full(464, 3 * NOISE), "level-shift"),
    ],
    ids=["it went on rising", "it came back", "it stayed"],
)
def test_what_lasts_is_judged_at_its_end_too(change: np.ndarray, course: str) -> None:
    last = 999 + len(change)
    window = steps(loss=changed(1000, change)[:last])
    assert course_of(window, saw(last=last)) == course


@pytest.mark.parametrize("height", [3 * NOISE, 60 * NOISE], ids=["a little", "far"])
def test_what_stood_higher_for_long_and_is_back_stays_at_no_new_level(height: float) -> None:
    """A bad shard of 100 steps: a sum that alarms may do so for as long again after it."""
    window = steps(loss=changed(1000, np.full(100, height)), gradient_norm=norms(2.0))
    over = [course_of(window, saw(last=last)) for last in (1099, 1105, 1199)]
    assert over == ["returned"] * 3
    still = steps(loss=changed(1000, np.full(AFTER_1000, height)), gradient_norm=norms(2.0))
    assert course_of(still, saw(last=1199)) in ("level-shift", "diverging")


@pytest.mark.parametrize(
    ("name", "severity", "told"),
    [
        ("divergence", "warning", "note"),
        ("second-moment-lag", "warning", "note"),
        ("divergence", "critical", "note"),
        ("dead-units", "critical", "critical"),
        ("loss-spike", "warning", "warning"),
        ("dead-units", "warning", "warning"),
    ],
)
def test_where_optimizers_take_turns_a_loss_may_rise(name: str, severity: Severity, told: str) -> None:
    """Of two networks against each other the loss of one rises as the other learns."""
    window = steps(loss=changed(1000, np.full(AFTER_1000, 20 * NOISE)), facts={"optimizers_in_turn": 2.0})
    (symptom,) = judge(window, [Sees((saw(name, severity=severity),))]).symptoms
    assert symptom.severity == told
    assert ("take turns" in symptom.message) is (told == "note")


MOVED = np.full(AFTER_1000, 20 * NOISE)
GROWING = np.linspace(20 * NOISE, 400 * NOISE, AFTER_1000)


@pytest.mark.parametrize(
    ("last", "z", "after", "told"),
    [
        (1040, 13.0, MOVED, "note"),
        (1040, 300.0, MOVED, "warning"),
        (1003, 13.0, MOVED, "note"),
        (1003, 13.0, GROWING, "warning"),
    ],
)
def test_where_optimizers_take_turns_a_spike_that_stays_is_a_rise(
    last: int, z: float, after: NDArray[np.float64], told: str
) -> None:
    """One loss of a pair moves to where the other one lets it, and stays there."""
    window = steps(loss=changed(1000, after), facts={"optimizers_in_turn": 2.0})
    (symptom,) = judge(window, [Sees((replace(saw("loss-spike", last=last), numbers={"z": z}),))]).symptoms
    assert symptom.severity == told


@pytest.mark.parametrize("fact", [COPY_FOLLOWS, OWN_ROLLOUTS, OWN_OUTPUTS])
@pytest.mark.parametrize(
    ("name", "severity", "told"),
    [
        ("divergence", "critical", "note"),
        ("exploding-gradients", "warning", "note"),
        ("lost-progress", "critical", "note"),
        ("second-moment-lag", "warning", "note"),
        ("loss-spike", "warning", "note"),
        ("update-norm-spike", "warning", "warning"),
        ("oscillation", "warning", "warning"),
        ("nonfinite-loss", "critical", "critical"),
    ],
)
def test_where_the_targets_move_a_loss_may_rise(name: str, severity: Severity, told: str, fact: float) -> None:
    window = steps(loss=changed(1000, MOVED), facts={"moving_targets": fact})
    (symptom,) = judge(window, [Sees((saw(name, severity=severity),))]).symptoms
    assert symptom.severity == told
    assert ("targets" in symptom.message) is (told == "note")


def stepped(before: float, after: float) -> FloatArray:
    return np.r_[np.full(999, before), np.full(AFTER_1000, after)]


SIGNS = {
    "none": ({}, "note"),
    "a rate twice as large": ({"learning_rate": stepped(1e-3, 2e-3)}, "note"),
    "a rate 100 times as large": ({"learning_rate": stepped(1e-3, 1e-1)}, "critical"),
    "a warm-up": ({"learning_rate": np.geomspace(1e-5, 1e-1, 999 + AFTER_1000)}, "note"),
    "weights twice as large": ({"parameter_norm": stepped(10.0, 20.0)}, "note"),
    "weights 20 times as large": ({"parameter_norm": stepped(10.0, 200.0)}, "critical"),
    "a loss 100 times as large": ({"loss": stepped(2.0, 200.0)}, "note"),
    "a loss 10,000 times as large": ({"loss": stepped(2.0, 20_000.0)}, "critical"),
}


@pytest.mark.parametrize(("signals", "told"), SIGNS.values(), ids=SIGNS)
def test_moving_targets_do_not_excuse_what_shows_harm(signals: dict[str, FloatArray], told: str) -> None:
    window = steps(**{"loss": changed(1000, MOVED), **signals, "facts": {"moving_targets": COPY_FOLLOWS}})
    (symptom,) = judge(window, [Sees((saw("divergence", severity="critical"),))]).symptoms
    assert symptom.severity == told


@pytest.mark.parametrize(("update", "told"), [(0.02, "note"), (1.0, "critical")])
def test_an_update_that_explodes_is_no_moving_target(update: float, told: str) -> None:
    at = range(900, 1060, 20)
    norms = {"weight": [0.01 if step < 1000 else update for step in at]}
    tables = {"tensors": table("tensors", at=at, update_norm=norms)}
    window = steps(loss=changed(1000, MOVED), facts={"moving_targets": OWN_ROLLOUTS}, tables=tables)
    (symptom,) = judge(window, [Sees((saw("divergence", severity="critical"),))]).symptoms
    assert symptom.severity == told


def test_what_is_critical_is_never_excused() -> None:
    window = replace(steps(loss=changed(1000, [0.5] * 20)), resumed=np.array([990]))
    (symptom,) = judge(window, [Sees((saw(severity="critical"),))]).symptoms
    assert symptom.severity == "critical"
