"""A run followed while it is written: the picture of each moment, in memory that does not grow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import builders
from live_runs import LiveRun
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action
from steadytrain.live.follower import RunFollower
from steadytrain.live.picture import Picture
from steadytrain.storage.run_folder import RUN_FILE


def look(follower: RunFollower, run: LiveRun, *, later: float = 0.0) -> Picture:
    """The picture ``later`` seconds after the last step."""
    return follower.poll(run.began + run.step * 0.1 + later)


def test_what_is_new_since_the_last_poll_is_in_the_next_picture(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    follower = RunFollower(run.path)
    empty = look(follower, run)
    assert (empty.state, empty.pace.step, empty.curves) == ("running", None, ())
    run.train(50, loss_scale=1024.0, data_wait_s=0.05)
    run.run.set_fact("planned_steps", 150)
    first = look(follower, run)
    assert (first.pace.step, first.pace.total, first.pace.recorded) == (50, 150, 50)
    assert first.pace.steps_per_s == pytest.approx(10, rel=1e-3)
    assert first.pace.eta_s == pytest.approx(10, rel=1e-3)
    assert first.pace.data_wait_share == pytest.approx(0.5)
    assert first.precision.loss_scale == 1024
    run.run.raise_symptom(builders.symptom(51))
    run.run.add_action(Action(51, "skip", "refused-update", "the gradient is not finite"))
    run.train(1, loss=float("nan"))
    second = look(follower, run)
    (loss, _) = second.curves
    assert (loss.newest != loss.newest, int(loss.whole.bad.sum()), loss.whole.largest[0]) == (True, 1, 9.0)
    assert [shown.symptom.name for shown in second.symptoms] == ["nonfinite-gradient"]
    assert (second.counts, second.last_action) == ({"critical": 1}, "refused-update at step 51")
    run.end("stopped", 70)
    last = look(follower, run)
    assert (last.state, last.exit_status, last.is_over, last.pace.eta_s) == ("stopped", 70, True, None)


def test_a_silent_run_is_stalled_and_a_killed_one_is_over(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(20)
    follower = RunFollower(run.path, total=100)
    assert not look(follower, run, later=20).pace.stalled
    silent = look(follower, run, later=31)
    assert (silent.pace.stalled, silent.pace.eta_s) == (True, None)
    document = json.loads((run.path / RUN_FILE).read_text("utf-8"))
    host, _ = document["process"].split("-")
    document["process"] = f"{host}-2000000000"  # beyond any process number
    (run.path / RUN_FILE).write_text(json.dumps(document), encoding="utf-8")
    killed = RunFollower(run.path).poll(run.began)
    assert (killed.state, killed.is_over, killed.pace.stalled) == ("killed", True, False)


def test_a_folder_that_vanishes_is_one_line(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(3)
    follower = RunFollower(run.path)
    look(follower, run)
    run.run.close()
    shutil.rmtree(run.path)
    with pytest.raises(UsageError, match="the run folder is gone"):
        look(follower, run)


def test_the_worst_layer_comes_first_and_a_bad_one_before_all(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    for _ in range(12):
        run.train()
        run.read("gradients", ["norm"], [[5.0], [0.1], [-1.0]])
    run.train()
    run.read("gradients", ["norm"], [[5.0], [0.4], [-1.0]])
    run.read("tensors", ["update_ratio", "unchanged_share"], [[0.01, 0], [0.2, 0.5], [np.nan, np.nan]])
    run.read("modules", ["headroom"], [[0.1], [0.9]], rows=["", "body"])
    follower = RunFollower(run.path)
    layers = look(follower, run).layers
    assert [layer.name for layer in layers.layers] == ["body.1.weight", "body.0.weight", "head.weight"]
    assert layers.layers[0].peak == pytest.approx(4)
    assert layers.layers[0].update_ratio == pytest.approx(0.2)
    assert (layers.layers[2].gradient_norm, layers.layers[2].peak) == (None, None)
    assert layers.headroom == ("body", pytest.approx(0.9))
    assert layers.unchanged == ("body.1.weight", 0.5)
    run.train()
    run.read("gradients", ["norm"], [[float("nan")], [0.1], [-1.0]])
    run.train()
    run.read("gradients", ["norm"], [[5.0], [0.1], [-1.0]])
    after = look(follower, run).layers.layers[0]
    assert (after.name, after.nonfinite, after.gradient_norm) == ("body.0.weight", True, 5.0)


def test_other_processes_add_their_symptoms(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(2)
    rank = LiveRun(run.path / "ranks" / "0001")
    rank.run.raise_symptom(builders.symptom(2, name="loss-spike", severity="warning"))
    picture = look(RunFollower(run.path), run)
    assert (picture.ranks, picture.counts, picture.symptoms[0].rank) == (1, {"warning": 1}, "0001")


def test_another_stream_is_followed_by_name(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(2)
    with pytest.raises(UsageError, match="no stream 'other'; it has: main"):
        look(RunFollower(run.path, stream="other"), run)


def test_memory_is_that_of_the_stretches_and_the_last_steps(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    follower = RunFollower(run.path)
    run.train(3000, seconds=0.01)
    curve = follower.poll(run.began).curves[0]
    assert len(curve.whole.smallest) <= 1024
    assert len(curve.recent.smallest) == 512
    assert (curve.recent.first_step, curve.recent.last_step) == (2489, 3000)


def test_the_document_of_a_picture_is_json(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(3, loss=float("inf"))
    run.read("machine", ["cpu_busy_share", "busy_share"], [[0.5, np.nan]], rows=["host"])
    document = json.loads(json.dumps(look(RunFollower(run.path), run).to_json(), allow_nan=False))
    assert document["schema"] == "steadytrain.top/1"
    assert (document["signals"]["loss"]["newest"], document["signals"]["loss"]["not_finite"]) == ("inf", 3)
    assert document["machine"] == {"host": {"cpu_busy_share": 0.5}}
