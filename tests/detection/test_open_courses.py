"""A symptom whose detector no longer finds it gets its course all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from steadytrain.core.model import Symptom, Window
from steadytrain.detection.open_courses import OpenCourses, is_recent
from steadytrain.testing import healthy_loss, steps

RISE = Symptom(
    "exploding-gradients",
    "warning",
    152,
    163,
    "the gradient norm grew",
    signals=("gradient_norm", "loss"),
    course="open",
)


def run(until: int, *, back: bool = True) -> Window:
    rng = np.random.default_rng(0)
    norms = np.exp(rng.normal(0.0, 0.2, 400))
    norms[151:163] *= 30.0
    if not back:
        norms[163:] *= 30.0
    rate = np.full(400, 1e-3)
    rate[100:150] = np.linspace(1e-3, 1e-5, 50)
    window = steps(loss=healthy_loss(400), gradient_norm=norms, learning_rate=rate)
    return window.slice(0, until)


def test_what_a_plan_explains_becomes_a_note_once_the_course_is_known() -> None:
    courses = OpenCourses()
    assert courses.settled(run(208), [RISE], set()) == []
    (settled,) = courses.settled(run(224), [RISE], set())
    assert (settled.severity, settled.course) == ("note", "learning-rate-restart")
    assert settled.message.startswith("the gradient norm grew (")
    assert courses.settled(run(224), [RISE], set()) == []


def test_what_does_not_come_back_stays_a_warning() -> None:
    (settled,) = OpenCourses().settled(run(240, back=False), [RISE], set())
    assert settled.severity == "warning"
    assert settled.course not in ("open", "learning-rate-restart", "recovered")


@pytest.mark.parametrize(
    "symptom",
    [replace(RISE, course="diverging"), replace(RISE, course=None), replace(RISE, stream="critic")],
)
def test_only_open_courses_of_the_stream_are_judged_again(symptom: Symptom) -> None:
    assert OpenCourses().settled(run(240), [symptom], set()) == []


def test_what_the_detectors_have_just_judged_is_left_to_them() -> None:
    assert OpenCourses().settled(run(240), [RISE], {("exploding-gradients", 152)}) == []


def test_a_symptom_is_reported_for_some_looks_after_its_end_and_longer_while_its_course_is_open() -> None:
    assert is_recent(RISE, 200, None)
    assert not is_recent(RISE, 240, None)
    assert is_recent(RISE, 240, RISE)
    assert not is_recent(RISE, 240, replace(RISE, course="diverging"))
    assert not is_recent(RISE, 300, RISE)
