"""Resumes from checkpoints that leave out an object of the training, and those that leave out nothing."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import steadytrain
from steadytrain.capture.snapshots.checkpoint_keys import CheckpointKeys
from steadytrain.capture.snapshots.stateful_objects import Stateful, count_of
from steadytrain.storage.run_folder import open_run

SCRIPTS = Path(__file__).parents[2] / "fixtures" / "resumes"


def told(folder: Path, script: str, run: str = "run") -> dict[str, str]:
    """Severity of what is told of each object that ``script`` left out of its checkpoint, by the object's name."""
    path = folder / script
    path.write_text((SCRIPTS / script).read_text())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with steadytrain.watch(runs_dir=folder / "runs", name=run), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
    found = [one for one in open_run(folder / "runs" / run).symptoms if one.name == "unsaved-state"]
    return {name: one.severity for one in found for name in re.findall(r"([\w.]+) \(", one.message)}


@pytest.mark.parametrize("saves", ["object", "numbers", "beside"])
def test_statistics_that_are_saved(saves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAVES", saves)
    assert told(tmp_path, "rl_normaliser.py") == {}


def test_statistics_of_the_observations(tmp_path: Path) -> None:
    assert told(tmp_path, "rl_normaliser.py") == {"self.obs_rms": "warning"}


@pytest.mark.parametrize(("saves", "expected"), [("nothing", {"normalizer": "warning"}), ("all", {})])
def test_the_second_run_of_a_command(
    saves: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAVES", saves)
    assert told(tmp_path, "two_runs.py", "first") == {}
    time.sleep(1.1)  # a run begins in a whole second
    assert told(tmp_path, "two_runs.py", "second") == expected


@pytest.mark.parametrize(
    ("saves", "expected"),
    [("nothing", {"schedule": "note", "ema": "note"}), ("all", {}), ("weights", {}), ("export", {})],
)
def test_averages_and_schedules(
    saves: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAVES", saves)
    assert told(tmp_path, "ema_and_schedule.py") == expected


@pytest.mark.parametrize("script", ["scaled_once.py", "statistics_in_model.py"])
def test_statistics_that_each_start_computes_or_the_model_holds(script: str, tmp_path: Path) -> None:
    assert told(tmp_path, script) == {}


class Statistics:
    def __init__(self) -> None:
        self.mean, self.var, self.count = 0.0, 1.0, 0


@pytest.mark.parametrize(
    ("checkpoint", "held"),
    [
        ({}, []),
        ({"epoch": 3, "model": {"0.running_mean": torch.ones(2)}}, []),
        ({"norm": {"mean": 0.0, "var": 1.0, "count": 9}}, ["norm"]),
        ({"norm": {"mean": 0.0}, "ret_norm": {"mean": 0.0}}, ["norm", "ret_norm"]),
        ({"ret_norm_mean": 0.0}, ["norm", "ret_norm"]),
        ({"kept": {"mean": 0.0, "var": 1.0, "count": 9}}, ["norm", "ret_norm"]),
        ({"obs": Statistics(), "returns": Statistics()}, ["norm", "ret_norm"]),
    ],
)
def test_what_a_checkpoint_holds(checkpoint: dict[str, Any], held: list[str]) -> None:
    """Where it is not clear whose state it is, it may be that of each."""
    keys = CheckpointKeys(checkpoint)
    known = [Stateful(name, Statistics(), True) for name in ("self.norm", "self.ret_norm")]
    assert [one.leaf for one in known if keys.hold(one, ["norm", "ret_norm"])] == held


@pytest.mark.parametrize("count", [3, 3.0, np.float64(3), np.array([3.0]), torch.tensor(3), torch.tensor([3.0])])
def test_counts_of_any_kind(count: Any) -> None:
    held = Statistics()
    held.count = count
    assert count_of(held) == 3.0


def test_a_meter_of_what_is_logged_has_no_spread() -> None:
    held = Statistics()
    del held.var
    assert count_of(held) is None
