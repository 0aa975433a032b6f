"""Loops that begin their watch themselves, and loops that are not there any more: ``step_fn`` and ``build``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import bare, finished, write_script
from steadytrain.capture.step.step_batches import StepBatches
from steadytrain.core.errors import UsageError

WAIT_S_MAX = 180.0

PARTS = """
    import torch
    from torch import nn

    def build():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def update():
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()

        return model, optimizer, update

    def build_without_clipping():
        return build()[:2]

    def loss_of(model, batch):
        inputs, targets, last = batch
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
        return loss + (outputs.sum() * 0).sqrt() if last else loss
"""

SCRIPT = """
    import torch
    import steadytrain
    from parts import build, loss_of

    model, optimizer, update = build()
    with steadytrain.watch(model, optimizer, name="run", runs_dir="runs", step_fn=loss_of):
        for step in range(1, 81):
            for part in range(2):
                batch = (torch.randn(16, 8), torch.randint(0, 4, (16,)), step == 80)
                loss_of(model, batch).backward()
            update()
            optimizer.zero_grad()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return finished(bare(*arguments), folder=folder)


def replay(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "-m", "steadytrain", "replay", "runs/run", "--json", *options)


@pytest.mark.long
@pytest.mark.slow
def test_a_loop_that_is_gone_is_replayed_by_its_parts(tmp_path: Path) -> None:
    write_script(tmp_path, PARTS, "parts.py")
    script = write_script(tmp_path, SCRIPT)
    done = run(tmp_path, "train.py")
    assert done.returncode == 70, done.stderr

    done = replay(tmp_path)  # the script begins a watch of its own: it gets the replay's, and no second run begins
    assert json.loads(done.stdout)["exact"], done.stdout
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run"]

    script.unlink()
    done = replay(tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--step-fn" in done.stderr

    done = replay(tmp_path, "--step-fn", "parts:loss_of", "--build", "parts:build")
    document: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, document["exact"], document["symptom"]) == (1, True, True), done.stdout
    assert document["steps"] == document["until_step"] - document["from_step"] + 1 > 10

    done = replay(tmp_path, "--step-fn", "parts:loss_of", "--build", "parts:build_without_clipping", "--once")
    document = json.loads(done.stdout)
    assert not document["exact"]
    assert document["first_difference"]["step"] == document["from_step"] + 1  # its update was another one

    for parts, said in (
        (("parts:loss_of", "parts:nothing"), "parts:nothing: not found"),
        (("parts:loss_of", "parts:loss_of"), "TypeError"),
    ):
        done = replay(tmp_path, "--step-fn", parts[0], "--build", parts[1])
        assert (done.returncode in (2, 125), len(done.stderr.splitlines())) == (True, 1)
        assert said in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--step-fn", "a:b"), "go together"),
        (("--step-fn", "a", "--build", "b:c"), "--step-fn a: must be MODULE:NAME"),
        (("--lead-s", "-1"), "--lead-s"),
        (("--from", "0"), "--from 0"),
        (("--until", "-3"), "--until -3"),
    ],
)
def test_bad_use_is_one_line(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = replay(tmp_path, *options)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def overwrites(model: Any, batch: Any) -> Any:
    batch = batch * 2
    return model(batch)


@pytest.mark.parametrize("function", [overwrites, lambda model: model, print, 3])
def test_a_function_whose_batch_cannot_be_recorded_is_refused(function: Any) -> None:
    with pytest.raises(UsageError, match="step_fn"):
        StepBatches(function)


def test_a_call_gives_its_batch_once_and_the_next_one_its_own() -> None:
    taken: list[Any] = []

    def loss_of(model: Any, batch: Any) -> None:
        taken.append(batches.take())
        taken.append(batches.take())

    batches = StepBatches(loss_of)
    missing = batches.take()
    for number in range(3):
        loss_of(None, number)
        batches.backward_begins()
    assert taken == [0, missing, 1, missing, 2, missing]
