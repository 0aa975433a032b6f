"""``kill -9`` while a checkpoint is pinned or a run is rolled back: its checkpoints load, and its folder is whole."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "attack_kills.py"
NEEDED = platform.system() == "Linux" and shutil.which("gcc") is not None

MOMENTS = {
    "pin": r"checkpoints|saved\.pt",
    "roll-back": r"incidents|checkpoints|index\.sqlite|run/saved",
}
"""The system calls before or after which the run is killed: those of the pins and of the script's own write; those of
the incident and of the ledger, which are written around the roll-back."""

KILLS = 8
STRUCK_MIN = 2
"""Threads write as they come, so another run may make fewer calls than the counted one, and a late kill none."""


@pytest.mark.long
@pytest.mark.skipif(not NEEDED, reason="the library of faults is for Linux and needs gcc")
@pytest.mark.parametrize("phase", MOMENTS)
def test_a_kill_leaves_checkpoints_that_load_and_a_whole_run_folder(phase: str, tmp_path: Path) -> None:
    options = ["--only", phase, "--on", MOMENTS[phase], "--faults", str(KILLS), "--jobs", "1", "--seed", "3"]
    line = [sys.executable, str(PROGRAM), *options, "--json", str(tmp_path / "tried.json")]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    tried = json.loads((tmp_path / "tried.json").read_text())
    assert done.returncode == 0, done.stdout
    assert len(tried) == KILLS
    assert {one["fault"] for one in tried} <= {"kill-before", "kill-after"}
    assert [one["wrong"] for one in tried] == [[]] * KILLS
    assert sum(bool(one["what"]) for one in tried) >= STRUCK_MIN
