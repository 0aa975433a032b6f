"""Judging a window: who looked, what belongs together, in which order, and what it comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pytest

from steadytrain.core.model import Series, Severity, Symptom, Window
from steadytrain.detectors import Detector
from steadytrain.detectors.lost_level import LostLevel
from steadytrain.detectors.lost_progress import LostProgress
from steadytrain.grouping import catalog, judge
from steadytrain.grouping.courses import course_of
from steadytrain.testing import healthy_loss, steps

LOSS = healthy_loss(1500, decay_steps=60)
NOISE = 0.04


def saw(
    name: str = "loss-spike",
    first: int = 1000,
    last: int | None = None,
    *,
    severity: Severity = "warning",
    signals: tuple[str, ...] = ("loss",),
) -> Symptom:
    return Symptom(name, severity, first, first if last is None else last, f"{name} at {first}", signals)


@final
@dataclass(frozen=True)
class Sees(Detector):
    """Sees what it is told to see."""

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    symptoms: tuple[Symptom, ...] = ()

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return self.symptoms


@final
@dataclass(frozen=True)
class NeedsTables(Detector):
    """Needs a column that is not there."""

    needs: ClassVar[tuple[str, ...]] = ("tensors.update_ratio", "modules.zero_share")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        raise AssertionError("must not be asked")


def changed(first: int, change: np.ndarray | list[float]) -> np.ndarray:
    """The healthy loss with ``change`` added from step ``first`` on."""
    loss = LOSS.copy()
    loss[first - 1 : first - 1 + len(change)] += change
    return loss


AFTER_1000 = 501
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


def test_what_is_critical_is_never_excused() -> None:
    window = replace(steps(loss=changed(1000, [0.5] * 20)), resumed=np.array([990]))
    (symptom,) = judge(window, [Sees((saw(severity="critical"),))]).symptoms
    assert symptom.severity == "critical"


def test_one_story_in_the_order_in_which_it_came() -> None:
    gradient = saw("exploding-gradients", 1000, 1010, signals=("gradient_norm",))
    update = saw("update-norm-spike", 1000, 1000, signals=("tensors.update_ratio",))
    nan = saw("nonfinite-loss", 1040, 1100, severity="critical")
    judged = judge(steps(loss=LOSS), [Sees((nan, gradient, update))])
    (story,) = judged.stories
    assert [symptom.name for symptom in story.symptoms] == [update.name, gradient.name, nan.name]
    assert (story.first_step, story.last_step, story.severity) == (1000, 1100, "critical")
    assert story.text.startswith("Update-norm-spike at 1000; with it, exploding-gradients at 1000; then nonfinite-loss")
    assert {symptom.story for symptom in judged.symptoms} == {1}
    assert judged.why == "nonfinite-loss from step 1000"


def test_at_one_step_a_nan_goes_from_the_loss_to_the_gradient_and_no_order_in_time_is_claimed() -> None:
    """Named by their signals alone, the gradient would come before the loss that it was computed from."""
    loss = saw("nonfinite-loss", 500, 600, severity="critical")
    gradient = saw("nonfinite-gradient", 500, 600, severity="critical", signals=("gradient_norm",))
    (story,) = judge(steps(loss=LOSS), [Sees((gradient, loss))]).stories
    assert story.text == "Nonfinite-loss at 500; with it, nonfinite-gradient at 500."


def test_what_lies_apart_are_two_stories() -> None:
    judged = judge(steps(loss=LOSS), [Sees((saw(first=400, last=410), saw(first=475)))])
    assert [story.number for story in judged.stories] == [1, 2]
    assert [symptom.story for symptom in judged.symptoms] == [1, 2]


def test_distance_is_counted_in_steps_of_the_log() -> None:
    window = steps(loss=LOSS, first_step=10, stride=10)
    judged = judge(window, [Sees((saw(first=4000, last=4100), saw(first=4740)))])
    assert len(judged.stories) == 1


def test_neither_a_standing_condition_nor_a_note_draws_everything_into_one_story() -> None:
    standing = saw("frozen-parameters", 100, 1500, signals=("tensors.update_norm",))
    note = saw("plateau", 100, 1500, severity="note")
    judged = judge(steps(loss=LOSS), [Sees((standing, note, saw(first=1200)))])
    assert [len(story.symptoms) for story in judged.stories] == [2, 1]


def test_a_detector_without_what_it_needs_is_not_asked_and_named() -> None:
    judged = judge(steps(loss=LOSS), [Sees(), NeedsTables()])
    assert judged.looked == ("sees",)
    assert judged.not_run == {"needs-tables": "there is no tensors.update_ratio and no modules.zero_share"}


def test_a_story_begins_with_what_was_done_to_the_run() -> None:
    rate = np.full(1500, 1e-3)
    rate[989:] = 3e-2
    gradient = saw("exploding-gradients", 1000, 1010, signals=("gradient_norm",))
    nan = saw("nonfinite-loss", 1040, 1100, severity="critical")
    (story,) = judge(steps(loss=LOSS, learning_rate=rate), [Sees((nan, gradient))]).stories
    begin, then, end = story.text.removesuffix(".").split("; then ")
    assert begin == "The learning rate went from 0.001 to 0.03 at step 990"
    assert (then, end) == ("exploding-gradients at 1000", "nonfinite-loss at 1040")
    (story,) = judge(replace(steps(loss=LOSS), resumed=np.array([970])), [Sees((saw(),))]).stories
    assert story.text.startswith("The run goes on at step 970, as after a resume; then loss-spike")


def test_a_warm_up_is_no_jump_of_the_learning_rate() -> None:
    window = steps(loss=LOSS, learning_rate=np.minimum(np.arange(1, 1501) / 100, 1.0) * 1e-3)
    (story,) = judge(window, [Sees((saw(first=40),))]).stories
    assert "learning rate" not in story.text


def test_health_names_who_looked_at_what_and_who_could_not() -> None:
    why = judge(steps(loss=LOSS), [Sees(), NeedsTables()]).why
    assert why.startswith("1 of 2 detectors could look at 1,500 steps (loss) and saw nothing above a note")
    assert why.endswith("; there are no tensors, modules")
    assert judge(steps(loss=LOSS), [NeedsTables()]).why == "no detector found what it needs (no tensors, modules)"


def test_losses_that_are_not_finite_are_no_sign_of_health() -> None:
    assert judge(steps(loss=np.where(np.arange(1500) < 10, 1.0, np.nan)), [Sees()]).health == "unknown"


def test_every_symptom_of_a_long_log_is_judged_by_the_rows_near_it() -> None:
    loss = np.random.default_rng(0).normal(2.0, 0.04, 200_000)
    loss[1000::1000] += 3.0
    found = tuple(saw(first=step + 1) for step in range(1000, 200_000, 1000))
    judged = judge(steps(loss=loss, learning_rate=np.full(200_000, 1e-3)), [Sees(found)])
    courses = Counter(symptom.course for symptom in judged.symptoms)
    assert courses["recovered"] >= 0.98 * len(found)
    assert set(courses) <= {"recovered", "recovering"}
    assert len(judged.stories) == len(found)


HEALTH = {
    "no loss": (steps(learning_rate=[1.0] * 300), "unknown"),
    "too few": (steps(loss=LOSS[:4]), "unknown"),
    "few, and it falls": (steps(loss=LOSS[:60]), "healthy"),
    "few, and it does not fall": (steps(loss=LOSS[1200:1260]), "unknown"),
    "few, and it falls by less than its noise": (steps(loss=LOSS[1200:1260] - np.arange(60) * 5e-4), "unknown"),
    "enough": (steps(loss=LOSS), "healthy"),
}


@pytest.mark.parametrize(("window", "health"), HEALTH.values(), ids=HEALTH)
def test_silence_is_not_health(window: Window, health: str) -> None:
    judged = judge(window, [Sees()])
    assert judged.health == health
    assert judged.why


def test_a_loss_that_stays_where_it_began_is_not_called_healthy() -> None:
    judged = judge(steps(loss=LOSS), [Sees((saw("no-learning", 1, 1500, severity="note"),))])
    assert (judged.health, judged.why) == ("unknown", "no-learning at 1")


@pytest.mark.parametrize(("severity", "health"), [("note", "healthy"), ("warning", "watch"), ("critical", "sick")])
def test_the_gravest_symptom_decides(severity: Severity, health: str) -> None:
    judged = judge(steps(loss=LOSS), [Sees((saw(severity=severity), saw(first=100, severity="note")))])
    assert judged.health == health


def test_the_shipped_detectors_tell_a_nan_after_a_rise_once() -> None:
    loss = changed(1000, np.linspace(0.5, 20.0, AFTER_1000))
    loss[1300:] = np.nan
    judged = judge(steps(loss=loss), catalog.detectors())
    assert judged.health == "sick"
    assert {"divergence", "nonfinite-loss"} <= {symptom.name for symptom in judged.symptoms}
    assert len([story for story in judged.stories if story.severity == "critical"]) == 1


def test_one_event_that_two_detectors_of_a_log_find_is_told_once() -> None:
    loss = healthy_loss(400, decay_steps=80.0)
    loss[119:] += 3.0
    judged = judge(steps(loss=loss), [LostLevel(), LostProgress()])
    assert [symptom.name for symptom in judged.symptoms] == ["lost-level"]
    assert {detector.check(steps(loss=loss))[0].severity for detector in (LostLevel(), LostProgress())} == {"critical"}
