"""What a launch says: the ``PYTHONPATH`` that the run had, where a module is not found, and how long it has run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from steadytrain.replay import failing_step
from steadytrain.replay.failing_step import Ended, launch, path_hint


def recorded(path: str) -> dict[str, object]:
    return {"environment": {"PYTHONPATH": path}}


def test_entries_that_are_searched_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"/here{os.pathsep}/there")
    assert path_hint(recorded(f"/there{os.pathsep}/here")) == ""
    assert path_hint(recorded(sys.path[-1])) == ""
    assert path_hint({}) == path_hint({"environment": {}}) == ""
    lost = path_hint(recorded("/there:/gone"))
    assert lost == "; the run had PYTHONPATH=/there:/gone: set it again"


def test_only_a_missing_module_brings_the_hint(tmp_path: Path) -> None:
    why = launch(["-c", "import no_such_module_1"], tmp_path / "r", recorded("/gone"), folder=None, wait_s=60.0)
    assert why is not None
    assert why.endswith("; the run had PYTHONPATH=/gone: set it again")
    assert "PYTHONPATH" not in Ended(1, ("ValueError: no",), False).before("step", recorded("/gone"))


def test_a_launch_that_lasts_is_told_and_ends_with_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_step, "TELL_S", 0.2)
    told: list[str] = []
    waits = ["-c", "import time; time.sleep(60)"]
    why = launch(waits, tmp_path / "r", {}, folder=None, wait_s=1.0, limit="half of --budget", tell=told.append)
    assert why == "the launched script took more than 1 s (half of --budget)"
    assert told
    assert all(line.startswith("the launched script has run for ") for line in told)
