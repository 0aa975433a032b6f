"""A note in which progress was lost is frozen as a note: the first of its kind, and those that follow are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fingerprint import digest as fingerprint
from fingerprint import random_digest, seed
from steadytrain.api.targets import incident_or_run_of, recorded_source
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.errors import UsageError
from steadytrain.core.levels import LEVELS
from steadytrain.core.model import Symptom
from steadytrain.detection import incidents as symptom_incidents
from steadytrain.detection.run_recorder import recording
from steadytrain.detection.summary import summary
from steadytrain.experiments.case_files import open_case
from steadytrain.grouping.catalog import detectors
from steadytrain.grouping.gravest import gravest_incident
from steadytrain.report.build import from_run
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.tape_files import find_recording

SPIKE, LAST = 60, 200


def loop(spikes: tuple[int, ...] = (SPIKE,), *, steps: int = LAST, sudden_rate: int | None = None) -> list[Any]:
    """Fits a plane; at the steps ``spikes`` the targets are those of another task."""
    seed(3)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    plane, losses = torch.randn(8, 1), []
    for step in range(1, steps + 1):
        x = torch.randn(32, 8)
        y = x @ plane + 0.3 * torch.randn(32, 1)
        loss = nn.functional.smooth_l1_loss(model(x), -4.0 * y if step in spikes else y)
        if step == sudden_rate:
            optimizer.param_groups[0]["lr"] = 3.0
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return [losses, fingerprint(list(model.state_dict().values())), random_digest()]


SICK = {"one batch": (SPIKE,), "two batches in a row": (SPIKE, SPIKE + 1), "in the last steps": (LAST - 3,)}
HEALTHY: dict[str, tuple[int, ...]] = {"nothing": ()}


def watched(folder: Path, run: Callable[[], Any], **settings: Any) -> tuple[Any, list[str], Watcher]:
    told: list[str] = []
    how = Settings(run_dir=folder, run_name="run", policy="stop", level=LEVELS["light"], **settings)
    watcher = Watcher(how, tell=told.append, record=recording(detectors()))
    try:
        given = run()
    finally:
        watcher.close(ended="finished")
    return given, told, watcher


def notes_of(run: Run) -> list[Path]:
    return [path for path in run.incidents if open_bundle(path).incident.is_note]


@pytest.mark.parametrize("spikes", SICK.values(), ids=SICK)
def test_progress_that_was_lost_for_a_step_is_frozen_with_the_steps_from_before_it(
    spikes: tuple[int, ...], tmp_path: Path
) -> None:
    given, told, watcher = watched(tmp_path / "run", lambda: loop(spikes))
    assert given == loop(spikes), "watching changed the training"
    run = open_run(tmp_path / "run")
    assert {symptom.severity for symptom in run.symptoms} == {"note"}
    (path,) = run.incidents
    incident = open_bundle(path).incident
    assert incident.is_note
    assert incident.onset_step == spikes[0]
    assert incident.action.reason.startswith("note: ")
    recorded = find_recording(path)
    assert recorded.snapshots[0].step < spikes[0]
    assert recorded.reaches(recorded.snapshots[0].step + 1) >= incident.step
    assert not find_recording(run.path).chunks, "the bundle has them"
    (line,) = [line for line in told if str(path) in line]
    assert line.startswith("note: ")
    assert "1 note" in summary(watcher, run.path)[0]
    assert watcher.stopped is None


@pytest.mark.parametrize("spikes", HEALTHY.values(), ids=HEALTHY)
def test_a_run_in_which_nothing_is_noted_leaves_nothing_behind(spikes: tuple[int, ...], tmp_path: Path) -> None:
    given, _, _ = watched(tmp_path / "run", lambda: loop(spikes))
    assert given == loop(spikes)
    run = open_run(tmp_path / "run")
    assert (run.symptoms, run.incidents) == ((), ())
    assert not find_recording(run.path).chunks
    with pytest.raises(UsageError, match=r"no incident; no tape of its steps was kept .*--keep-rewind.*diagnose"):
        gravest_incident(run.path)


def test_those_that_follow_are_counted_in_the_first_and_their_tape_stays(tmp_path: Path) -> None:
    spikes = (SPIKE, SPIKE + 40, SPIKE + 80, SPIKE + 120)
    watched(tmp_path / "run", lambda: loop(spikes))
    run = open_run(tmp_path / "run")
    (path,) = run.incidents
    incident = open_bundle(path).incident
    first = incident.symptoms[0]
    assert first.first_step == SPIKE
    assert (first.numbers["more_notes"], first.numbers["last_note_step"]) == (3.0, float(spikes[-1]))
    assert incident.action.reason == f"note: loss-spike, and 3 more until step {spikes[-1]}"
    assert find_recording(run.path).reaches(2) == LAST, "the tape of the notes that no bundle has"


def test_there_are_at_most_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symptom_incidents, "INCIDENTS_MAX", {"critical": 3, "warning": 3, "note": 0})
    watched(tmp_path / "run", loop)
    run = open_run(tmp_path / "run")
    assert run.incidents == ()
    assert find_recording(run.path).reaches(2) == LAST
    with pytest.raises(UsageError, match=r"no incident; its tape can be done again: `steadytrain replay"):
        gravest_incident(run.path)
    assert recorded_source(run.path, tmp_path) == run.path


def test_a_note_that_belongs_to_something_graver_needs_no_bundle(tmp_path: Path) -> None:
    """The batch of step 60 is forgotten; the rate of step 70 is not, and with it is one story."""
    watched(tmp_path / "run", lambda: loop((SPIKE,), sudden_rate=SPIKE + 10))
    run = open_run(tmp_path / "run")
    assert any(symptom.first_step <= SPIKE + 10 for symptom in run.symptoms)
    assert run.incidents
    assert notes_of(run) == []


def test_a_rise_of_a_small_share_of_the_progress_is_none_worth_a_bundle(tmp_path: Path) -> None:
    def noisy() -> None:
        """From 1 down to 0.01, and for a step at 0.05: five times its level, and four in a hundred of the way."""
        weight = nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        for step in range(1, LAST):
            aim = 0.05 if step == 120 else max(0.01, 0.9**step)
            optimizer.zero_grad()
            loss = 1e-6 * (weight - weight.detach()) + aim * (1.0 + 0.02 * (step % 3))
            loss.backward()
            optimizer.step()

    watched(tmp_path / "run", noisy)
    run = open_run(tmp_path / "run")
    assert [(symptom.name, symptom.severity) for symptom in run.symptoms if symptom.first_step == 120] == [
        ("loss-spike", "note")
    ]
    assert run.incidents == ()
    assert find_recording(run.path).last_step == LAST - 1


def test_what_the_schedule_explains_is_not_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symptom_incidents, "planned_change", lambda *_: "the learning rate rose")
    watched(tmp_path / "run", loop)
    run = open_run(tmp_path / "run")
    assert [symptom.name for symptom in run.symptoms] == ["loss-spike"]
    assert run.incidents == ()


def test_a_note_in_which_the_loss_did_not_rise_keeps_the_tape_and_makes_no_incident(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    told: list[str] = []
    how = Settings(run_dir=folder, run_name="run", policy="stop", level=LEVELS["light"])
    watcher = Watcher(how, tell=told.append, record=recording(detectors()))
    loop(())
    (stream,) = watcher.streams
    note = Symptom("update-norm-spike", "note", 100, 100, "it jumped", signals=("tensors.update_ratio",))
    watcher.recorder.report(stream, note)
    watcher.close(ended="finished")
    run = open_run(folder)
    assert run.incidents == ()
    assert find_recording(folder).reaches(2) == LAST


def test_it_is_shown_as_a_note_and_a_graver_symptom_leads(tmp_path: Path) -> None:
    watched(tmp_path / "run", loop)
    run = open_run(tmp_path / "run")
    report = from_run(run)
    assert (report.severity, report.incidents[0].is_note) == ("note", True)
    assert report.verdict.startswith("No alarm; note: loss-spike at step 60")


def test_diagnosis_takes_it_for_worth_a_cause(tmp_path: Path) -> None:
    watched(tmp_path / "run", loop)
    path = incident_or_run_of(tmp_path / "run", tmp_path)
    case = open_case(path)
    assert case.of_note
    assert case.symptom is not None
    assert (case.symptom.severity, case.onset) == ("warning", SPIKE)
    assert case.begin is not None
    assert case.begin < SPIKE
