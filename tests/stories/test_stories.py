"""Judging a window: who looked, what belongs together, in which order, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pytest

from steadytrain import catalog
from steadytrain.model import Severity, Symptom, Window
from steadytrain.stories import judge
from steadytrain.stories.courses import course_of
from steadytrain.symptoms import Detector
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
    window = steps(loss=changed(1000, [0.5] * 20), resumed=[990])
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert (symptom.severity, symptom.course) == ("note", "resume")


def test_a_clipped_spike_that_recovers_is_a_note() -> None:
    clip = np.ones(1500)
    clip[999] = 0.05
    window = steps(loss=changed(1000, [3.0]), clip_coefficient=clip)
    (symptom,) = judge(window, [Sees((saw(),))]).symptoms
    assert symptom.severity == "note"
    assert "clipped" in symptom.message


def test_what_is_critical_is_never_excused() -> None:
    window = steps(loss=changed(1000, [0.5] * 20), resumed=[990])
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
    assert story.text.startswith("Update-norm-spike at 1000; then exploding-gradients at 1000; then nonfinite-loss")
    assert {symptom.story for symptom in judged.symptoms} == {1}
    assert judged.why == "nonfinite-loss from step 1000"


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


HEALTH = {
    "no loss": (steps(learning_rate=[1.0] * 300), "unknown"),
    "too few": (steps(loss=LOSS[:19]), "unknown"),
    "few, and it falls": (steps(loss=LOSS[:60]), "healthy"),
    "few, and it does not fall": (steps(loss=LOSS[1200:1260]), "unknown"),
    "enough": (steps(loss=LOSS), "healthy"),
}


@pytest.mark.parametrize(("window", "health"), HEALTH.values(), ids=HEALTH)
def test_silence_is_not_health(window: Window, health: str) -> None:
    judged = judge(window, [Sees()])
    assert judged.health == health
    assert judged.why


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
