"""``steadytrain ctl``: a live run takes commands between two of its steps, and writes them down."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
import torch
from test_roll_back import Training

import steadytrain
from gate_loops import recorded
from steadytrain.core.errors import UsageError
from steadytrain.guard.control_socket import CONTROL_FILE, ask


class Commands(threading.Thread):
    """Another process's part: sends commands, each as soon as the one before was answered."""

    def __init__(self, run: Path, texts: list[str]) -> None:
        super().__init__(daemon=True)
        self._run, self._texts = run, texts
        self.answers: list[tuple[bool, str]] = []
        self.over = threading.Event()

    def run(self) -> None:
        for text in self._texts:
            self.answers.append(ask(self._run, text))
        self.over.set()


def commanded(folder: Path, texts: list[str], policy: str = "stop") -> tuple[Training, Commands]:
    training, commands = Training("AdamW"), Commands(folder / "run", texts)
    with steadytrain.watch(training.model, training.optimizer, name="run", runs_dir=folder, policy=policy, to="none"):
        steps = training.steps()
        next(steps)
        mode = os.stat(_socket(folder)).st_mode
        assert stat.S_IMODE(mode) == 0o600
        commands.start()
        for _ in steps:
            commands.over.wait(0.02)
    commands.join(10)
    return training, commands


def _socket(folder: Path) -> str:
    import json

    return str(json.loads((folder / "run" / CONTROL_FILE).read_text())["socket"])


def test_commands_are_carried_out_and_written_down(tmp_path: Path) -> None:
    texts = [
        "status",
        "lr*0.1",
        "clip 0.5",
        "pause",
        "status",
        "resume",
        "snapshot",
        "capture 3",
        "lr off",
        "level full",
    ]
    _, commands = commanded(tmp_path, texts)
    assert [done for done, _ in commands.answers] == [True] * len(texts), commands.answers
    assert "set-learning-rate, clip" in commands.answers[4][1]
    run = recorded(tmp_path)
    what = [(action.what, action.intervention) for action in run.actions]
    assert what[:4] == [("applied", "set-learning-rate"), ("applied", "clip"), ("paused", ""), ("resumed", "")]
    assert {"kept-snapshot", "reverted", "changed-level", "kept-steps"} <= {word for word, _ in what}
    assert all(action.by == "hand" for action in run.actions)
    assert list((run.path / "by-hand").glob("*/*.safetensors"))
    assert "kept-by-hand-step" in [path.name.rpartition("-")[0] for path in run.incidents]
    changed = run.actions[0]
    assert changed.after["learning_rate"] == pytest.approx(0.1 * changed.before["learning_rate"])
    assert not (run.path / CONTROL_FILE).exists()


def test_a_run_under_observe_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_roll_back.SPIKE", -1)
    training, commands = commanded(tmp_path, ["lr*0.1", "stop", "status"], policy="observe")
    assert [done for done, _ in commands.answers] == [False, False, True]
    bare = Training("AdamW")
    for _ in bare.steps():
        pass
    assert torch.equal(training.model.head.weight, bare.model.head.weight)


def test_stop_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(steadytrain.RunStopped, match="by hand"):
        commanded(tmp_path, ["stop"])
    assert [action.what for action in recorded(tmp_path).actions] == ["stopped"]


def test_a_run_that_is_over_takes_no_commands(tmp_path: Path) -> None:
    commanded(tmp_path, ["status"])
    with pytest.raises(UsageError, match="takes no commands"):
        ask(tmp_path / "run", "status")
