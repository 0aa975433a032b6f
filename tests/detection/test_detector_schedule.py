"""Detectors beside training: their turns, what they are given, and what is told of what they see."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pytest

from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Reading, Symptom, Window
from steadytrain.detection.detector_schedule import LOOK_STEPS
from steadytrain.detection.run_recorder import RunRecorder
from steadytrain.detection.sink import NoSink
from steadytrain.detection.step_history import StepHistory
from steadytrain.detectors import Detector
from steadytrain.grouping import catalog
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.segments import StepRecord
from steadytrain.testing import healthy_loss

NAMES = ("a", "b")


class Training:
    """Steps of a run, as the watcher hands them to the books."""

    def __init__(self, folder: Path, *detectors: Detector) -> None:
        self.told: list[str] = []
        self.recorder = RunRecorder(
            Settings(folder, "run"), Guard(self.told.append), self.told.append, detectors, NoSink()
        )
        weakref.finalize(self, self.recorder.begin().close)  # Python 3.13 warns of a database that stays open
        self.stream = Stream("main", StepHistory(stream="main"))

    def step(self, **scalars: float) -> list[Symptom]:
        self.stream.step += 1
        record = StepRecord(self.stream.step, 0.0, {"loss": 1.0, **scalars}, np.ones(len(NAMES), np.float32))
        self.stream.history.append(record, NAMES)
        found = self.recorder.look(self.stream)
        self.recorder.tell_symptoms(found)
        return found

    def read(self, column: str) -> None:
        values = np.ones((len(NAMES), 1), np.float32)
        self.stream.history.read(self.stream.step, 0.0, Reading("tensors", NAMES, (column,), values))


@final
@dataclass(frozen=True)
class Looked(Detector):
    """Keeps the windows that it was given, which no real detector may do."""

    needs: ClassVar[tuple[str, ...]] = ("loss", "gradient_norms")
    windows: list[Window] = field(default_factory=list)

    def check(self, window: Window) -> tuple[Symptom, ...]:
        self.windows.append(window)
        return ()


@final
@dataclass(frozen=True)
class LookedAtTables(Detector):
    """The same for what only tables tell."""

    needs: ClassVar[tuple[str, ...]] = ("tensors.update_norm",)
    windows: list[Window] = field(default_factory=list)

    def check(self, window: Window) -> tuple[Symptom, ...]:
        self.windows.append(window)
        return ()


@final
@dataclass(frozen=True)
class High(Detector):
    """Every loss above 2, named by the first of them in view: its name slides with the window."""

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    steps_max: int = 4096

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.last(self.steps_max).series("loss")
        high = loss.steps[loss.values > 2.0]
        if not len(high):
            return ()
        message = f"high from {high[0]}"
        return (Symptom("loss-spike", "warning", int(high[0]), int(high[-1]), message, ("loss",)),)


@final
@dataclass(frozen=True)
class Breaks(Detector):
    """Raises."""

    needs: ClassVar[tuple[str, ...]] = ("loss",)

    def check(self, window: Window) -> tuple[Symptom, ...]:
        raise ZeroDivisionError("oops")


def test_each_detector_looks_once_in_16_steps_and_never_all_in_one(tmp_path: Path) -> None:
    detectors = [Looked() for _ in range(40)]
    training = Training(tmp_path / "run", *detectors)
    asked = []
    for _ in range(4 * LOOK_STEPS):
        before = sum(len(detector.windows) for detector in detectors)
        training.step()
        asked.append(sum(len(detector.windows) for detector in detectors) - before)
    assert {len(detector.windows) for detector in detectors} == {3, 4}  # not before there is a window
    assert max(asked) == 3
    for detector in detectors:
        for window in detector.windows:
            assert int(window.steps[-1]) % LOOK_STEPS == 0
            assert len(window.gradient_norms) == len(window)


def test_everybody_looks_at_once_when_asked_to(tmp_path: Path) -> None:
    detectors = [Looked() for _ in range(40)]
    training = Training(tmp_path / "run", *detectors)
    for _ in range(5):
        training.step()
    training.recorder.detect(training.stream)
    assert [int(detector.windows[-1].steps[-1]) for detector in detectors] == [5] * 40


def test_of_tables_alone_there_is_nothing_new_without_a_reading(tmp_path: Path) -> None:
    detector = LookedAtTables()
    training = Training(tmp_path / "run", detector)
    for _ in range(50):
        training.step()
    assert not detector.windows
    training.read("update_norm")
    for _ in range(100):
        training.step()
    assert len(detector.windows) == 1
    training.read("update_norm")
    for _ in range(50):
        training.step()
    assert [len(window.tables["tensors"]) for window in detector.windows] == [1, 2]


def test_a_symptom_is_told_once_though_its_edge_slides_with_the_window(tmp_path: Path) -> None:
    training = Training(tmp_path / "run", High(steps_max=64))
    for number in range(300):
        training.step(loss=5.0 if number >= 40 else 1.0)
    assert [line.split(":")[0] for line in training.told] == ["warning"]
    (symptom,) = training.recorder.symptoms.values()
    assert (symptom.first_step, symptom.message) == (41, "high from 41")
    assert symptom.last_step > 270
    assert [known.first_step for known in open_run(tmp_path / "run").symptoms] == [41]


def test_what_becomes_of_a_symptom_is_put_on_record(tmp_path: Path) -> None:
    training = Training(tmp_path / "run", High())
    loss = 0.1 * healthy_loss(400, decay_steps=20)
    loss[200] = 3.0
    courses = []
    for value in loss:
        training.step(loss=float(value), clip_coefficient=0.2 if value > 2.0 else 1.0)
        courses += [symptom.course for symptom in training.recorder.symptoms.values()]
    assert list(dict.fromkeys(courses)) == ["open", "recovered"]
    (symptom,) = open_run(tmp_path / "run").symptoms
    assert (symptom.severity, symptom.course) == ("note", "recovered")
    assert "clipped" in symptom.message
    assert len(training.told) == 1


def test_what_is_over_does_not_come_back(tmp_path: Path) -> None:
    training = Training(tmp_path / "run", High())
    for number in range(400):
        found = training.step(loss=5.0 if number == 40 else 1.0)
        assert number < 200 or not found


def test_a_detector_that_raises_is_told_of_once_and_the_others_look_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "reraise", False)
    others = [Looked() for _ in range(20)]
    training = Training(tmp_path / "run", Breaks(), *others)
    for _ in range(5 * LOOK_STEPS):
        training.step()
    assert [line for line in training.told if "oops" in line] == training.told
    assert len(training.told) == 1
    assert min(len(other.windows) for other in others) >= 3


def test_the_shipped_detectors_are_silent_on_a_healthy_run(tmp_path: Path) -> None:
    training = Training(tmp_path / "run", *catalog.detectors())
    draw = np.random.default_rng(1)
    for value in healthy_loss(700, decay_steps=100):
        training.step(loss=float(value), gradient_norm=float(draw.lognormal(0, 0.2)), step_s=0.1, learning_rate=1e-3)
    assert [line for line in training.told if line.startswith(("warning", "critical"))] == []
    assert "loss-spike" in training.recorder.detector_names
    assert "dead-units" not in training.recorder.detector_names


def test_stories_are_told_and_put_on_record_when_the_run_is_over(tmp_path: Path) -> None:
    training = Training(tmp_path / "run", *catalog.detectors())
    loss = healthy_loss(500, decay_steps=60)
    loss[300:] += np.linspace(0.2, 12.0, 200)
    loss[450:] = np.nan
    for value in loss:
        training.step(loss=float(value))
    training.recorder.detect(training.stream)
    training.recorder.close([training.stream], {"ended": "completed"})
    grave = [story for story in training.recorder.stories if story.severity != "note"]
    assert [symptom.name for symptom in grave[0].symptoms if symptom.severity == "critical"][-1] == "nonfinite-loss"
    assert len(grave) == 1
    on_record = {symptom.name: symptom.story for symptom in open_run(tmp_path / "run").symptoms}
    assert on_record["nonfinite-loss"] == on_record["divergence"] == grave[0].number
