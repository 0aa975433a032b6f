"""The tools' own settings of whoever runs the tests stay out of them, and nothing goes over a network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from steadytrain.exporters import exporter_process


@pytest.fixture(autouse=True)
def _no_settings_of_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(name)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "theirs"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)  # where MLflow puts its artifacts


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    for process in exporter_process._left:
        process.kill()
        process.wait()
    exporter_process._left.clear()
