"""A launch that finds a module no more says which ``PYTHONPATH`` the run had."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

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
