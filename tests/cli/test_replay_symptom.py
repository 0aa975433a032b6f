"""``steadytrain replay`` of an incident of finite values: the symptom comes again, or what was mended took it away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import Ended, call, run_script
from steadytrain.core.model import Symptom, Window
from steadytrain.replay.symptom_recurrence import StepNumbers, came_again
from steadytrain.storage.bundle import open_bundle

WAIT_S_MAX = 120.0
SPIKE = 640

SCRIPT = f"""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    plane = torch.randn(6, 1)
    TOO_LARGE = 1000.0
    for step in range(1, {SPIKE + 20}):
        x = torch.randn(16, 6)
        y = (x @ plane + 0.3 * torch.randn(16, 1)) * (TOO_LARGE if step == {SPIKE} else 1.0)
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(scope="module")
def spiked(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_script(tmp_path_factory.mktemp("spiked"), SCRIPT)


def replay(path: Path, *options: str, status: int) -> Any:
    done = call("replay", str(path), "--json", *options)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_the_spike_comes_again_from_before_its_onset(spiked: Ended) -> None:
    (path,) = spiked.run.incidents
    document = replay(path, status=1)
    assert (document["exact"], document["symptom"]) == (True, True)
    assert document["from_step"] <= SPIKE < document["until_step"]


@pytest.mark.long
def test_in_a_script_that_was_mended_it_does_not_come(spiked: Ended) -> None:
    (path,) = spiked.run.incidents
    script = spiked.run_dir.parents[1] / "train.py"
    source = script.read_text()
    script.write_text(source.replace("TOO_LARGE = 1000.0", "TOO_LARGE = 1.0"))
    try:
        document = replay(path, status=0)
    finally:
        script.write_text(source)
    assert (document["symptom"], document["kind"]) == (False, "environment-changed")
    assert document["first_difference"]["step"] == SPIKE


@pytest.mark.long
def test_a_bundle_whose_recording_was_deleted_says_what_is_missing(spiked: Ended, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, SCRIPT, "--rewind-mb", "0")
    (path,) = outcome.run.incidents
    assert "--rewind-mb 0" in replay(path, status=2)


def test_the_detector_judges_replayed_numbers(spiked: Ended) -> None:
    bundle = open_bundle(spiked.run.incidents[0])
    symptom, window = bundle.incident.symptoms[0], bundle.scalars
    same = numbers(window, {})
    assert came_again(symptom, window, bundle.window, same) is True
    assert came_again(symptom, window, bundle.window, numbers(window, {SPIKE: 0.2})) is False
    assert came_again(symptom, window, bundle.window, {}) is None


def test_a_detector_that_reads_tables_cannot_judge(spiked: Ended) -> None:
    bundle = open_bundle(spiked.run.incidents[0])
    dead = Symptom("dead-units", "critical", SPIKE, SPIKE, "dead")
    assert came_again(dead, bundle.scalars, bundle.window, numbers(bundle.scalars, {})) is None


def numbers(window: Window, losses: dict[int, float]) -> dict[int, StepNumbers]:
    """The recorded losses of the last steps, some of them others."""
    steps = zip(window.steps.tolist(), window.signals["loss"].tolist(), strict=True)
    return {step: StepNumbers({"loss": losses.get(step, loss)}, {}) for step, loss in steps if step > SPIKE - 10}
