"""Run folders of steadytrain's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import read, read_one

import builders
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import open_run


def test_a_run_and_a_folder_of_runs(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "runs" / "bad")
    builders.quiet_run(tmp_path / "runs" / "quiet")
    log = read_one(path)
    assert (log.name, log.kind) == ("bad", "steadytrain")
    assert log.window.steps.tolist() == open_run(path).scalars().steps.tolist()
    assert sorted(log.name for log in read(tmp_path / "runs")) == ["bad", "quiet"]


def test_a_run_without_steps(tmp_path: Path) -> None:
    path = builders.write_run(tmp_path / "empty")
    (path / "steps").mkdir(exist_ok=True)
    for file in path.glob("steps/**/*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(UsageError, match="this run has no steps yet"):
        read(path)
