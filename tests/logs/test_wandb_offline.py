"""Runs that Weights & Biases keeps on disk, written by wandb itself in a process of its own."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reading import loss_at, metric, read, read_one, signal

from steadytrain.core.errors import UsageError

SCRIPT = """
import sys, wandb
from reading import NAN, loss_at
run = wandb.init(project="p", name="my-run", mode="offline", settings=wandb.Settings(console="off", silent=True))
for step in range(10, 1010, 10):
    row = {"train/loss": NAN if step > 900 else loss_at(step), "train": {"grad_norm": 2.0}, "train/global_step": step}
    run.log(row | {"text": "x" * 500})
    if step % 100 == 0:
        run.log({"eval/loss": loss_at(step), "train/global_step": step})
run.finish()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    folder = tmp_path_factory.mktemp("wandb-run")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), "HOME": str(folder)}
    environment |= {"WANDB_DIR": str(folder), "WANDB_MODE": "offline"}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, env=environment, check=True, timeout=80)
    return folder


def test_what_wandb_wrote(recorded: Path) -> None:
    log = read_one(recorded)
    assert (log.name, log.kind, log.notes) == ("my-run", "wandb", ())
    loss = signal(log, "loss")
    assert list(loss) == list(range(10, 1010, 10))
    assert all(loss[step] == loss_at(step) for step in range(10, 910, 10))
    assert math.isnan(loss[910])
    assert set(signal(log, "gradient_norm").values()) == {2.0}
    assert metric(log, "eval/loss") == {step: loss_at(step) for step in range(100, 1001, 100)}


def test_a_run_that_was_killed_while_it_wrote(recorded: Path, tmp_path: Path) -> None:
    (file,) = recorded.glob("**/run-*.wandb")
    whole = file.read_bytes()
    cut = tmp_path / "run-cut.wandb"
    cut.write_bytes(whole[: len(whole) // 2])
    log = read_one(cut)
    assert 10 < len(log.window) < 100
    assert "run-cut.wandb is cut short or damaged; its last" in log.notes[0]
    cut.write_bytes(whole[:200])
    with pytest.raises(UsageError, match="no history in it"):
        read(cut)


def test_rubbish_behind_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b":W&B\xe1\xbe\x00" + bytes(range(256)) * 40)
    with pytest.raises(UsageError, match="no history in it"):
        read(path)
