"""Judging a window: who looked, what belongs together, in which order, and what it comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pytest
from story_windows import AFTER_1000, LOSS, Sees, changed, saw

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.detectors import Detector
from steadytrain.detectors.lost_level import LostLevel
from steadytrain.detectors.lost_progress import LostProgress
from steadytrain.grouping import catalog, judge
from steadytrain.grouping.stories import tell
from steadytrain.testing import healthy_loss, steps


@final
@dataclass(frozen=True)
class NeedsTables(Detector):
    """Needs a column that is not there."""

    needs: ClassVar[tuple[str, ...]] = ("tensors.update_ratio", "modules.zero_share")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        raise AssertionError("must not be asked")


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
    assert [symptom.name for symptom in story.symptoms] == [loss.name, gradient.name]
    assert story.text == "Nonfinite-loss at 500; 1 more symptom follows from it."


def test_what_follows_from_a_nan_is_counted_and_what_came_before_it_is_told() -> None:
    spike = saw("exploding-gradients", 490, 500, signals=("gradient_norm",))
    names = ("nonfinite-loss", "nonfinite-gradient", "nonfinite-activation", "nonfinite-weight")
    broken = [saw(name, 500 + at, 600, severity="critical") for at, name in enumerate(names)]
    (story,) = judge(steps(loss=LOSS), [Sees((spike, *broken))]).stories
    assert story.text.startswith(
        "Exploding-gradients at 490; then nonfinite-loss at 500; 3 more symptoms follow from it."
    )


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


def test_what_had_lasted_for_long_does_not_lead_the_story_of_something_graver() -> None:
    rate = np.full(1500, 1e-3)
    rate[1039:] = 3e-2
    frozen = saw("frozen-parameters", 800, 1400, signals=("tensors.unchanged",))
    over = saw("loss-spike", 810, 815)
    nan = saw("nonfinite-loss", 1040, 1100, severity="critical")
    judged = judge(steps(loss=LOSS, learning_rate=rate), [Sees((nan, frozen, over))])
    (story,) = judged.stories
    assert story.first_step == 800
    assert story.text == ("Loss-spike at 810; then nonfinite-loss at 1040. Already before: frozen-parameters at 800.")
    (story,) = judge(steps(loss=LOSS, learning_rate=rate), [Sees((nan, frozen))]).stories
    assert story.text == (
        "The learning rate went from 0.001 to 0.03 at step 1040; then nonfinite-loss at 1040. "
        "Already before: frozen-parameters at 800."
    )
    late = saw("frozen-parameters", 1000, 1400, signals=("tensors.unchanged",))
    (story,) = judge(steps(loss=LOSS), [Sees((nan, late))]).stories
    assert story.text == "Frozen-parameters at 1000; then nonfinite-loss at 1040."


def test_a_warm_up_is_no_jump_of_the_learning_rate() -> None:
    window = steps(loss=LOSS, learning_rate=np.minimum(np.arange(1, 1501) / 100, 1.0) * 1e-3)
    (story,) = judge(window, [Sees((saw(first=40),))]).stories
    assert "learning rate" not in story.text


def test_health_names_who_looked_at_what_and_who_could_not() -> None:
    judged = judge(steps(loss=LOSS), [Sees(), NeedsTables()])
    assert judged.why == "1 of 2 detectors could look at 1,500 steps (loss) and saw nothing above a note"
    assert len(judged.not_run) == 1
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


def test_a_rate_is_told_once() -> None:
    window = steps(loss=[1.0] * 60, learning_rate=[1e-3] * 29 + [1.0] * 31)
    jumped = Symptom("learning-rate-jump", "warning", 30, 60, "the learning rate jumped from 0.001 to 1 at step 30")
    rose = Symptom("divergence", "warning", 31, 60, "the loss rises", signals=("loss",))
    (both,), (alone,) = tell([jumped, rose], window), tell([rose], window)
    assert both.text.startswith("The learning rate jumped from 0.001 to 1 at step 30; then the loss rises")
    assert alone.text.startswith("The learning rate went from 0.001 to 1 at step 30; then the loss rises")


def test_a_warm_up_from_a_rate_of_zero_is_no_change() -> None:
    window = steps(loss=[1.0] * 60, learning_rate=[0.00625 * step for step in range(60)])
    rose = Symptom("divergence", "warning", 31, 60, "the loss rises", signals=("loss",))
    (story,) = tell([rose], window)
    assert story.text.startswith("The loss rises")
