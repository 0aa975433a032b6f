"""Weights & Biases, offline, read back from its own file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb")

from builders import records
from feeding import SECRET, STEPS, feed
from scripts import Started, write
from steadytrain.exporters import run_exports

BLOCK_BYTES = 32768

# Four ways in which scripts log: every call a row, with a step of their own, a row in two calls, and rarely.
SCRIPT = """
import sys
import wandb
from feeding import followed

incident, to, *hows = sys.argv[1:]
settings = wandb.Settings(console="off", silent=True)
for how in hows:
    run = wandb.init(project="mine", name="theirs", mode="offline", dir=how, settings=settings)
    for record in followed([to], folder=how, with_incident=incident == "incident"):
        loss = record.scalars["loss"]
        if how == "step":
            run.log({"loss": loss}, step=10 * record.step)
        elif how == "two-calls":
            wandb.log({"loss": loss}, commit=False)
            wandb.log({"rate": record.scalars["learning_rate"]})
        elif how == "rarely":
            if record.step % 50 == 0:
                run.log({"loss": loss})
        else:
            wandb.log({"loss": loss})
    print("the next step would be", run.step)
    run.finish()
"""
# One run after another inside one loop, the first of which begins after the first step.
TWO_RUNS = """
import wandb
from feeding import followed

settings = wandb.Settings(console="off", silent=True)
run = None
for record in followed(["auto"]):
    if record.step in (10, 70):
        if run is not None:
            run.finish()
        run = wandb.init(project="mine", mode="offline", dir=str(record.step), settings=settings)
    if run is not None:
        run.log({"loss": record.scalars["loss"]})
run.finish()
"""
HOWS = ("row", "step", "two-calls", "rarely")


def read(folder: Path) -> Iterator[Any]:
    """The records of the one run under ``folder``: W&B's file is a log of LevelDB, whose records may be in parts."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("**/run-*.wandb")
    data, position, parts = file.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < 7:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def rows(folder: Path) -> list[dict[str, Any]]:
    return [_items(record.history.item) for record in read(folder) if record.HasField("history")]


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B takes seconds to start and to end a run; these tests want to see what came of it."""
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", 90.0)


def summary(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for record in read(folder):
        if record.HasField("summary"):
            values |= _items(record.summary.update)
    return values


def artifact_files(folder: Path) -> list[str]:
    (artifact,) = (
        record.request.log_artifact.artifact if record.HasField("request") else record.artifact
        for record in read(folder)
        if record.HasField("artifact") or (record.HasField("request") and record.request.HasField("log_artifact"))
    )
    assert artifact.type == "incident"
    assert all(Path(entry.local_path).is_file() for entry in artifact.manifest.contents)
    return sorted(entry.path for entry in artifact.manifest.contents)


def _items(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def theirs(row: dict[str, Any]) -> dict[str, Any]:
    """A row without our columns and without W&B's clock."""
    return {
        name: value
        for name, value in row.items()
        if not name.startswith("steadytrain/") and name not in ("_timestamp", "_runtime")
    }


def test_a_run_of_ours_is_read_back(tmp_path: Path) -> None:
    told: list[str] = []
    feed(tmp_path / "run", ["wandb"], told=told)
    assert told == []
    expected = records(STEPS, nan_at=STEPS)
    logged = rows(tmp_path / "run")

    loss = {row["step"]: row["loss"] for row in logged if "loss" in row}
    assert list(loss) == [record.step for record in expected]
    assert list(loss.values())[:-1] == pytest.approx([record.scalars["loss"] for record in expected[:-1]])
    assert loss[STEPS] == "NaN" or loss[STEPS] != loss[STEPS]
    norms = {row["step"]: row["gradients/model.head.bias/norm"] for row in logged if "gradients/norm_median" in row}
    assert norms == pytest.approx({1: 0.1, 50: 0.1, 100: 0.1})
    name, over_values = "gradients/head.weight/log2", "gradients/head.weight/values"
    (histogram,) = (row for row in logged if f"{name}/_type" in row)
    assert (histogram["step"], histogram[f"{name}/_type"]) == (100, "histogram")
    counted = zip(histogram[f"{name}/bins"], histogram[f"{name}/values"], strict=False)
    assert {left: count for left, count in counted if count} == {-42: 0.25, -2: 0.5, -1: 0.25}
    signed = zip(histogram[f"{over_values}/bins"], histogram[f"{over_values}/values"], strict=False)
    assert sum(count for left, count in signed if left < -0.25) == pytest.approx(0.5)
    assert [row["step"] for row in logged if "symptoms/nonfinite-gradient" in row] == [STEPS]
    assert [row["_step"] for row in logged] == list(range(len(logged)))

    last = summary(tmp_path / "run")
    assert last["symptom_messages/nonfinite-gradient"] == f"critical, step {STEPS}: 2 of 3 gradients are not finite"
    assert "aten.log.default" in last[f"incidents/step-{STEPS:06d}"]
    assert last["ended"] == "stopped"
    alerts = [record.alert.title for record in read(tmp_path / "run") if record.HasField("alert")]
    assert alerts == ["steadytrain: nonfinite-gradient"]
    assert "model.safetensors" in artifact_files(tmp_path / "run")
    assert [record.exit.exit_code for record in read(tmp_path / "run") if record.HasField("exit")] == [1]
    everything = b"".join(file.read_bytes() for file in (tmp_path / "run").glob("**/*") if file.is_file())
    assert b"--hub-token" in everything
    assert SECRET.encode() not in everything


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the script's runs, one for each way to log, without us and with us."""
    started = {}
    for name in ("none", "auto"):
        folder = tmp_path_factory.mktemp(name)
        for how in HOWS:
            (folder / how).mkdir()
        write(folder, SCRIPT)
        started[folder] = Started([sys.executable, "script.py", "well", name, *HOWS], folder)
    said = []
    for script in started.values():
        ended = script.end()
        assert ended.status == 0, ended.err
        said.append(ended.out.splitlines())
    told = [line for line in said[1] if line.startswith("note: ")]
    assert said[0] == [line for line in said[1] if line not in told]
    assert len(told) == len(HOWS)
    assert all("also in the active wandb run" in line for line in told)
    return dict(zip(("bare", "ours"), started, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_script_s_own_run_keeps_its_rows_and_gets_columns(how: str, both: dict[str, Path]) -> None:
    bare, ours = rows(both["bare"] / how), rows(both["ours"] / how)
    assert [theirs(row) for row in ours] == [theirs(row) for row in bare]
    assert not any(name.startswith("steadytrain/") for row in bare for name in row)

    carried = [row for row in ours if "steadytrain/step" in row]
    losses = {record.step: record.scalars["loss"] for record in records(STEPS)}
    signals = [row for row in carried if "steadytrain/loss" in row]
    assert signals
    for row in signals:
        assert row["steadytrain/loss"] == pytest.approx(losses[row["steadytrain/step"]])
    name = "steadytrain/weights/head.weight/log2"
    with_histogram = [row["steadytrain/step"] for row in carried if f"{name}/bins" in row]
    assert with_histogram == ([] if how == "rarely" else [60])

    last, last_bare = summary(both["ours"] / how), summary(both["bare"] / how)
    assert any(key.startswith(name) for key in last)
    assert last["steadytrain/ended"] == "finished"
    clock = ("_wandb/runtime",)
    assert {key: value for key, value in theirs(last).items() if key not in clock} == {
        key: value for key, value in theirs(last_bare).items() if key not in clock
    }
    metrics = [record.metric for record in read(both["ours"] / how) if record.HasField("metric")]
    assert [(metric.glob_name, metric.step_metric) for metric in metrics] == [("steadytrain/*", "steadytrain/step")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tensors"), [("auto", False), ("wandb", True)])
def test_an_incident_in_a_script_s_own_run_has_its_tensors_only_when_asked(
    name: str, tensors: bool, tmp_path: Path
) -> None:
    write(tmp_path, SCRIPT)
    (tmp_path / "row").mkdir()
    ended = Started([sys.executable, "script.py", "incident", name, "row"], tmp_path).end()
    assert ended.status == 0, ended.err
    files = artifact_files(tmp_path)
    assert "incident.json" in files
    assert ("model.safetensors" in files) == tensors
    last = summary(tmp_path)
    assert "aten.log.default" in last[f"steadytrain/incidents/step-{STEPS:06d}"]
    assert "not finite" in last["steadytrain/symptom_messages/nonfinite-gradient"]
    assert last["steadytrain/symptoms/nonfinite-gradient"] == 3
    assert (last["steadytrain/step"], last["steadytrain/loss"]) == (STEPS + 1, "nan")
    assert not list((tmp_path / "row" / "run").glob("wandb*"))


@pytest.mark.slow
def test_runs_that_begin_and_end_on_the_way_are_joined_one_after_the_other(tmp_path: Path) -> None:
    for step in (10, 70):
        (tmp_path / str(step)).mkdir()
    write(tmp_path, TWO_RUNS)
    ended = Started([sys.executable, "script.py"], tmp_path).end()
    assert ended.status == 0, ended.err
    assert [line.startswith("note: also in the active wandb run") for line in ended.out.splitlines()] == [True, True]
    first, second = rows(tmp_path / "10"), rows(tmp_path / "70")
    assert [row["_step"] for row in first] == list(range(60))
    assert [row["_step"] for row in second] == list(range(51))
    assert {row["steadytrain/step"] for row in first if "steadytrain/step" in row} < set(range(20, 70))
    assert {row["steadytrain/step"] for row in second if "steadytrain/step" in row} < set(range(80, 121))
    assert summary(tmp_path / "70")["steadytrain/ended"] == "finished"
