"""MLflow's file store. Newer versions of MLflow write it only when asked to, and it is plain text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from reading import loss_at, metric, read, read_one, signal

from steadytrain.core.errors import UsageError

STEPS = range(10, 510, 10)


def run(folder: Path, *, name: str = "my-run", stage: str = "active", same_time: bool = False) -> Path:
    (folder / "metrics" / "train").mkdir(parents=True)
    (folder / "meta.yaml").write_text(f"artifact_uri: x\nlifecycle_stage: {stage}\nrun_name: {name}\nstatus: 3\n")

    def lines(value: float | None, steps: range) -> str:
        # Several steps within a millisecond are usual on a fast loop.
        times = {step: 1_700_000_000_000 + (0 if same_time else step) for step in steps}
        return "".join(f"{times[step]} {loss_at(step) if value is None else value} {step}\n" for step in steps)

    (folder / "metrics" / "train" / "loss").write_text(lines(None, STEPS) + "1700000001000 nan 510\n")
    (folder / "metrics" / "lr").write_text(lines(0.25, STEPS))
    (folder / "metrics" / "val_loss").write_text(lines(3.5, range(100, 501, 100)))
    return folder


@pytest.mark.parametrize("same_time", [False, True])
def test_a_store(tmp_path: Path, same_time: bool) -> None:
    run(tmp_path / "mlruns" / "123" / "abc", same_time=same_time)
    run(tmp_path / "mlruns" / "123" / "gone", stage="deleted")
    (tmp_path / "mlruns" / "123" / "meta.yaml").write_text("name: e\n")
    log = read_one(tmp_path / "mlruns")
    assert (log.name, log.kind) == ("my-run", "mlflow")
    loss = signal(log, "loss")
    assert math.isnan(loss.pop(510))
    assert loss == {step: loss_at(step) for step in STEPS}
    assert set(signal(log, "learning_rate").values()) == {0.25}
    assert metric(log, "val_loss") == dict.fromkeys(range(100, 501, 100), 3.5)
    assert not len(log.window.resumed)
    assert read_one(tmp_path / "mlruns" / "123" / "abc").window.steps.tolist() == log.window.steps.tolist()


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    run(tmp_path / "1" / "abc")
    run(tmp_path / "1" / "def")
    assert [log.name for log in read(tmp_path)] == ["1/my-run", "1/my-run (2)"]


def test_a_run_without_metrics(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    for file in folder.glob("metrics/**/*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(UsageError, match="this run of MLflow has no metrics"):
        read(folder)
