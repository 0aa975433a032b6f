"""MLflow's SQLite store, made by MLflow itself in a process of its own."""

from __future__ import annotations

import importlib.util
import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from reading import loss_at, metric, read, read_one, signal

from steadytrain.core.errors import UsageError

SCRIPT = """
import mlflow
from reading import NAN, loss_at
mlflow.set_experiment("e")
with mlflow.start_run(run_name="my-run"):
    for step in range(10, 310, 10):
        mlflow.log_metrics({"train/loss": loss_at(step), "lr": 0.25}, step=step)
    mlflow.log_metric("train/loss", float("inf"), step=310)
    mlflow.log_metric("train/loss", NAN, step=320)
    mlflow.log_metric("val_loss", 3.5, step=300)
with mlflow.start_run(run_name="gone") as run:
    mlflow.log_metric("loss", 1.0, step=1)
mlflow.delete_run(run.info.run_id)
"""


@pytest.mark.slow
def test_what_mlflow_wrote(tmp_path: Path) -> None:
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is not installed")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    environment |= {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, check=True, timeout=200, capture_output=True
    )
    file = tmp_path / "mlflow.db"
    before = file.read_bytes()
    log = read_one(file)
    assert (log.name, log.kind) == ("my-run", "mlflow-sqlite")
    loss = signal(log, "loss")
    assert math.isnan(loss.pop(320))
    assert loss.pop(310) == math.inf
    assert loss == {step: loss_at(step) for step in range(10, 310, 10)}
    assert signal(log, "learning_rate")[10] == 0.25
    assert metric(log, "val_loss") == {300: 3.5}
    assert file.read_bytes() == before


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE songs (name TEXT)")
        base.commit()
    with pytest.raises(UsageError, match="cannot be read as an MLflow store"):
        read(path)
