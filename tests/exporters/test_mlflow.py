"""MLflow: what lies in its SQLite file, and a server on it that the test starts."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlflow.version")

from builders import records
from feeding import SECRET, STEPS, feed
from scripts import Started, write
from steadytrain.exporters import run_exports

SERVER_START_S_MAX = 120.0

# A script with a run of its own, in a SQLite file that ours is then written to as well.
SCRIPT = """
import sys
import mlflow
from feeding import followed

with mlflow.start_run(run_name="theirs"):
    mlflow.log_param("rate", 3e-4)
    for record in followed(sys.argv[1:], with_incident=True):
        mlflow.log_metric("loss", record.scalars["loss"], step=10 * record.step)
        if record.step % 40 == 0:
            mlflow.log_dict({"step": record.step}, f"state-{record.step}.json")
"""


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow takes seconds to import and to make its tables; these tests want to see what came of it."""
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", 90.0)


def query(file: Path, text: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as base:
        return base.execute(text, arguments).fetchall()


def metric(file: Path, name: str) -> list[tuple[int, float]]:
    found = query(file, "SELECT step, value, is_nan FROM metrics WHERE key = ? ORDER BY step, timestamp", name)
    return [(step, math.nan if is_nan else value) for step, value, is_nan in found]


def tags(file: Path) -> dict[str, str]:
    return dict(query(file, "SELECT key, value FROM tags"))


def check_our_run(file: Path, run_dir: Path) -> Path:
    """What a run of ours looks like; returns the folder of its artifacts."""
    (run,) = query(file, "SELECT name, status, artifact_uri FROM runs")
    assert run[:2] == (run_dir.name, "FAILED")
    assert query(file, "SELECT name FROM experiments WHERE experiment_id != 0") == [("steadytrain",)]
    expected = {record.step: record.scalars["loss"] for record in records(STEPS, nan_at=STEPS)}
    loss = metric(file, "loss")
    assert [step for step, _ in loss] == [1, *range(10, STEPS + 1, 10)]
    assert all(value == expected[step] for step, value in loss[:-1])
    assert math.isnan(loss[-1][1])
    assert [step for step, _ in metric(file, "gradients/model.head.bias/norm")] == [1, 50, 100]
    assert metric(file, "gradients/head.weight/log2_p05") == [(100, pytest.approx(-41.8))]
    assert metric(file, "gradients/head.weight/log2_p50") == [(100, pytest.approx(-1.5))]
    assert metric(file, "machine/cuda_0/temperature_c") == [(100, 61.0)]
    assert metric(file, "symptoms/nonfinite-gradient") == [(STEPS, 3.0)]
    said = tags(file)
    assert said["steadytrain.symptom.nonfinite-gradient"].startswith(f"critical, step {STEPS}: 2 of 3")
    assert "aten.log.default" in said[f"steadytrain.incident.step-{STEPS:06d}"]
    assert said["steadytrain.run_folder"] == str(run_dir)
    params = dict(query(file, "SELECT key, value FROM params"))
    assert params["git.commit"] == "0123456789abcdef0123456789abcdef01234567"
    assert "--hub-token" in params["argv"]
    assert SECRET not in params["argv"]
    return Path(run[2].removeprefix("file://"))


@pytest.mark.slow
def test_a_run_of_ours_is_read_back(tmp_path: Path) -> None:
    told: list[str] = []
    feed(tmp_path / "run", ["mlflow"], told=told)
    assert told == []
    artifacts = check_our_run(tmp_path / "mlflow.db", tmp_path / "run")
    kept = {file.name for file in (artifacts / "incidents" / f"step-{STEPS:06d}").iterdir()}
    assert kept >= {"incident.json", "manifest.json", "model.safetensors", "README.md"}


@pytest.mark.slow
def test_a_script_s_own_run_is_joined_and_left_alone(tmp_path: Path) -> None:
    started = {}
    for name in ("none", "auto"):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, SCRIPT)
        environment = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}", "MLFLOW_DISABLE_TELEMETRY": "true"}
        started[folder] = Started([sys.executable, "script.py", name], folder, environment=environment)
    for folder, script in started.items():
        ended = script.end()
        assert ended.status == 0, ended.err
        assert ("also in the active mlflow run" in ended.out) == (folder.name == "auto")
        assert "warning" not in ended.out
    bare, ours = (folder / "mlflow.db" for folder in started)
    assert metric(ours, "loss") == metric(bare, "loss")
    ask = "SELECT key, value FROM params"
    assert query(ours, ask) == query(bare, ask)
    ask = "SELECT name, status FROM runs"
    assert query(ours, ask) == query(bare, ask) == [("theirs", "FINISHED")]
    ask = "SELECT DISTINCT key FROM metrics WHERE key NOT LIKE 'steadytrain/%'"
    assert query(ours, ask) == query(bare, ask) == [("loss",)]
    kept = {name: value for name, value in tags(ours).items() if not name.startswith("steadytrain.")}
    assert kept.keys() == tags(bare).keys()

    assert [step for step, _ in metric(ours, "steadytrain/loss")] == [1, *range(10, STEPS + 1, 10), STEPS + 1]
    assert metric(ours, "steadytrain/symptoms/nonfinite-gradient") == [(STEPS, 3.0)]
    ((uri,),) = query(ours, "SELECT artifact_uri FROM runs")
    folder = Path(uri.removeprefix("file://"))
    assert {file.name for file in folder.glob("state-*.json")} == {f"state-{step}.json" for step in (40, 80, 120)}
    kept_files = {file.name for file in (folder / "steadytrain" / "incidents" / f"step-{STEPS:06d}").iterdir()}
    assert "incident.json" in kept_files
    assert "model.safetensors" not in kept_files


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An MLflow server on a SQLite file and a free port; its address and its file."""
    folder = tmp_path / "server"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**environment, "MLFLOW_DISABLE_TELEMETRY": "true"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/health", process)
        yield address, folder / "server.db"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SERVER_START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no server within {SERVER_START_S_MAX:.0f} s")


@pytest.mark.long
def test_a_server_is_sent_the_run(server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, file = server
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    told: list[str] = []
    feed(tmp_path / "run", ["mlflow"], told=told)
    assert told == []
    check_our_run(file, tmp_path / "run")
    assert list((file.parent / "artifacts").glob(f"**/incidents/step-{STEPS:06d}/model.safetensors"))


@pytest.mark.slow
def test_a_server_that_is_not_there_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        told: list[str] = []
        feed(tmp_path / "run", ["mlflow"], told=told)
    assert len(told) == 1, told
    assert re.match("warning: (nothing more goes|not everything went) to mlflow: ", told[0])
    assert "127.0.0.1" in told[0]
    assert "\n" not in told[0]
