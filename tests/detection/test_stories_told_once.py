"""One NaN is told once while a run goes on: by the first of its symptoms, with the number of the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from steadytrain.core.model import Severity, Symptom
from steadytrain.detection.run_recorder import RunRecorder


class Told:
    """What a recorder says of symptoms, found in several looks."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self._recorder: Any = RunRecorder.__new__(RunRecorder)
        self._recorder.symptoms, self._recorder.told, self._recorder._tells = {}, {}, Counter()
        self._recorder._tell = self.lines.append
        self._recorder.settings = SimpleNamespace(run_dir=folder)

    def look(self, *found: Symptom) -> list[str]:
        for one in found:
            self._recorder.symptoms[one.name, one.stream, one.first_step] = one
        before = len(self.lines)
        self._recorder.tell_symptoms(found)
        return self.lines[before:]


def saw(name: str, first: int, last: int, severity: Severity = "critical", stream: str = "main") -> Symptom:
    return Symptom(name, severity, first, last, f"{name} at {first}", stream=stream)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_what_follows_from_a_nan_is_counted_and_not_told(told: Told) -> None:
    first = told.look(saw("nonfinite-loss", 150, 150), saw("nonfinite-gradient", 150, 150))
    assert first == ["critical: nonfinite-loss at 150; 1 more symptom follows from it"]
    assert told.look(saw("nonfinite-loss", 150, 159), saw("nonfinite-weight", 151, 159)) == []


def test_another_nan_another_optimizer_and_other_symptoms_are_told(told: Told) -> None:
    told.look(saw("nonfinite-loss", 150, 150))
    assert told.look(saw("nonfinite-loss", 9_000, 9_000)) == ["critical: nonfinite-loss at 9000"]
    assert told.look(saw("nonfinite-loss", 151, 151, stream="critic")) == ["critical: nonfinite-loss at 151 (critic)"]
    assert told.look(saw("loss-spike", 152, 153, "warning")) == ["warning: loss-spike at 152"]


def test_a_graver_one_is_told_after_a_lighter_one(told: Told) -> None:
    assert told.look(saw("nonfinite-gradient", 5, 5, "warning")) == ["warning: nonfinite-gradient at 5"]
    assert told.look(saw("nonfinite-loss", 6, 6)) == ["critical: nonfinite-loss at 6"]


def test_a_severity_that_goes_up_and_down_is_told_three_times(told: Told) -> None:
    severities: list[Severity] = ["warning", "critical", "warning", "critical", "warning", "critical"]
    lines = [told.look(saw("lost-progress", 152, 216 + at, severity)) for at, severity in enumerate(severities)]
    assert [len(line) for line in lines] == [1, 1, 1, 0, 0, 0]


def test_a_severity_that_falls_is_told_so_that_the_end_adds_up(told: Told) -> None:
    assert told.look(saw("lost-progress", 152, 216)) == ["critical: lost-progress at 152"]
    lowered = ["warning (no longer critical): lost-progress at 152"]
    assert told.look(saw("lost-progress", 152, 224, "warning")) == lowered
    assert told.look(saw("lost-progress", 152, 232, "warning")) == []
    told.look(saw("loss-spike", 240, 241, "warning"))
    assert told.look(saw("loss-spike", 240, 242, "note")) == []
