"""Symptoms of finite values become incidents: bounded, one to a story, and training does not notice."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fingerprint import digest as fingerprint
from fingerprint import random_digest, seed
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.incident import freeze
from steadytrain.capture.settings import Settings
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.incident import Incident
from steadytrain.core.levels import LEVELS
from steadytrain.detection import incidents as symptom_incidents
from steadytrain.detection.run_recorder import recording
from steadytrain.grouping.catalog import detectors
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tape_files import find_recording, recording_note

SPIKE, LAST = 640, 760
EARLY_RATE = 300.0


def loop(steps: int = LAST, *, spikes: tuple[int, ...] = (SPIKE,), rate: float = 0.003) -> list[Any]:
    """Fits a plane; at the steps ``spikes`` the targets are a thousand times too large. Losses, weights, generators."""
    seed(11)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    plane, losses = torch.randn(6, 1), []
    for step in range(1, steps + 1):
        x = torch.randn(16, 6)
        y = (x @ plane + 0.3 * torch.randn(16, 1)) * (1000.0 if step in spikes else 1.0)
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return [losses, fingerprint(list(model.state_dict().values())), random_digest()]


def watched(folder: Path, run: Callable[[], Any], **settings: Any) -> tuple[Any, list[str]]:
    """``run`` under an ordinary watch; what it gave, and what was told."""
    told: list[str] = []
    how = Settings(run_dir=folder, run_name="run", policy="observe", level=LEVELS["light"], **settings)
    watcher = Watcher(how, tell=told.append, record=recording(detectors()))
    try:
        given = run()
    finally:
        watcher.close(ended="finished")
    return given, told


def incidents(folder: Path) -> list[Incident]:
    return [open_bundle(path).incident for path in open_run(folder).incidents]


def test_a_spike_is_frozen_from_before_its_onset_and_training_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    given, told = watched(tmp_path / "run", loop)
    assert given == loop()
    (path,) = open_run(tmp_path / "run").incidents
    bundle = open_bundle(path)
    assert (bundle.incident.kind, bundle.incident.symptoms[0].name) == ("symptom", "loss-spike")
    assert bundle.incident.onset_step == SPIKE
    assert SPIKE < bundle.incident.step < LAST
    assert path.name == f"loss-spike-step-{bundle.incident.step:06d}"
    assert bundle.incident.losses == (given[0][bundle.incident.step - 1],)
    recording = find_recording(path)
    assert recording.snapshots[0].step < SPIKE
    assert recording.reaches(recording.snapshots[0].step + 1) >= bundle.incident.step
    assert len(bundle.scalars) == bundle.incident.step
    assert bundle.scalars.signals["loss"].tolist() == given[0][: bundle.incident.step]
    assert bundle.environment["sources"]
    assert [line for line in told if str(path) in line] == [f"the steps around it are kept: {path}"]


def test_a_healthy_run_freezes_nothing(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(spikes=()))
    assert open_run(tmp_path / "run").incidents == ()


@pytest.mark.long
def test_what_only_the_last_look_sees_is_frozen_too(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(SPIKE + 3))
    (incident,) = incidents(tmp_path / "run")
    assert (incident.symptoms[0].name, incident.step) == ("loss-spike", SPIKE + 3)
    assert find_recording(open_run(tmp_path / "run").incidents[0]).reaches(2) == SPIKE + 3


def test_a_fault_of_the_first_steps_can_be_replayed_from_the_second(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(120, spikes=(), rate=EARLY_RATE))
    first = incidents(tmp_path / "run")[0]
    assert first.symptoms[0].severity == "critical"
    (path, *_) = open_run(tmp_path / "run").incidents
    assert find_recording(path).starts()[0] == 2
    assert find_recording(path).reaches(2) >= first.step


@pytest.mark.long
def test_of_one_story_there_is_one_incident_and_of_one_kind_one(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(1000, spikes=(SPIKE, SPIKE + 20, SPIKE + 250)))
    assert [incident.onset_step for incident in incidents(tmp_path / "run")] == [SPIKE]


@pytest.mark.long
def test_there_are_at_most_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symptom_incidents, "INCIDENTS_MAX", {"critical": 0, "warning": 0, "note": 0})
    watched(tmp_path / "run", loop)
    assert open_run(tmp_path / "run").incidents == ()


def test_without_a_tape_the_bundle_says_so(tmp_path: Path) -> None:
    watched(tmp_path / "run", loop, rewind_bytes_max=0)
    (path,) = open_run(tmp_path / "run").incidents
    incident = open_bundle(path).incident
    assert "--rewind-mb 0" in incident.batch_note
    assert "--rewind-mb 0" in incident.state_note
    assert find_recording(path).chunks == ()


@pytest.mark.long
def test_a_second_optimizer_that_takes_turns_with_the_first_is_on_the_tape(tmp_path: Path) -> None:
    def turns() -> None:
        seed(5)
        models = [nn.Linear(6, 1), nn.Linear(6, 1)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
        plane = torch.randn(6, 1)
        for step in range(1, LAST):
            for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                x = torch.randn(16, 6)
                y = (x @ plane + 0.3 * torch.randn(16, 1)) * (1000.0 if number and step == SPIKE else 1.0)
                optimizer.zero_grad()
                nn.functional.smooth_l1_loss(model(x), y).backward()
                optimizer.step()

    watched(tmp_path / "run", turns)
    (path,) = open_run(tmp_path / "run").incidents
    assert open_bundle(path).incident.stream == "optimizer-2"
    assert recording_note(path) is None
    assert find_recording(path).chunk_of(SPIKE) is not None


def test_a_disk_that_takes_no_bundle_is_told_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Guard, "reraise", False)
    monkeypatch.setattr(freeze, "write_window", full)
    given, told = watched(tmp_path / "run", loop)
    assert given == loop()
    assert len([line for line in told if "No space left" in line]) == 1
    assert open_run(tmp_path / "run").incidents == ()


def test_an_incident_of_the_gate_is_the_only_one_of_its_story(tmp_path: Path) -> None:
    def breaks() -> None:
        seed(2)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(1, 200):
            x = torch.randn(8, 4)
            loss = model(x).square().mean() * (float("nan") if step >= 100 else 1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    watched(tmp_path / "run", breaks)
    (incident,) = incidents(tmp_path / "run")
    assert (incident.kind, incident.step) == ("nonfinite", 100)
    assert json.loads((open_run(tmp_path / "run").incidents[0] / "incident.json").read_text())["kind"] == "nonfinite"
