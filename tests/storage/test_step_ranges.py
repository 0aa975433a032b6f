"""One signal of a stretch of steps: only these, over several files, and never more than the bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_runs import LiveRun
from steadytrain.storage import step_ranges
from steadytrain.storage.step_ranges import steps_between


def test_only_the_steps_that_were_asked_for_and_have_the_signal(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(10)
    run.train(1, loss=float("nan"))
    run.train(9, loss_scale=2.0)
    folder = run.path / "steps" / "main"
    loss = steps_between(folder, "loss", 9, 12)
    assert loss.steps.tolist() == [9, 10, 11, 12]
    assert str(loss.values[2]) == "nan"
    assert loss.values[0] == pytest.approx(1 + 8 / 9)
    assert steps_between(folder, "loss_scale", 1, 13).steps.tolist() == [12, 13]
    assert len(steps_between(folder, "loss", 21, 30)) == len(steps_between(folder, "none", 1, 30)) == 0


def test_no_more_than_the_bound_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_ranges, "STEPS_MAX", 5)
    run = LiveRun(tmp_path / "run")
    run.train(20)
    assert steps_between(run.path / "steps" / "main", "loss", 3, 20).steps.tolist() == [3, 4, 5, 6, 7]
