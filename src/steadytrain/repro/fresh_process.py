"""Runs a script in a fresh process with Python and torch only, and reports how it ended."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from steadytrain.repro.bounded_process import run_python
from steadytrain.repro.program_script import FAULT

PASSED_ON = (
    *("PATH", "HOME", "TMPDIR", "SYSTEMROOT", "LANG", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
)
"""Environment variables that torch may need. No others enter the fresh process."""


def fault_in_fresh_process(script: Path, *, wait_s: float, fault: str = FAULT) -> str | None:
    """None if the script fails with its own assertion, which contains ``fault``. Else a text that says how it ended."""
    try:
        done = run_fresh([str(script.absolute())], wait_s=wait_s)
    except subprocess.TimeoutExpired:
        return f"the script took more than {wait_s:.0f} s"
    said = done.stderr.strip().splitlines()[-1:] or [""]
    if done.returncode == 1 and said[0].startswith("AssertionError") and fault in said[0]:
        return None
    if done.returncode == 0:
        return "in a fresh process the script found no fault"
    return f"in a fresh process the script ended with {done.returncode}: {said[0]}"


def run_fresh(arguments: list[str], *, wait_s: float) -> subprocess.CompletedProcess[str]:
    """Runs Python with ``arguments`` in an empty folder and a bare environment.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``wait_s`` seconds.
    """
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="steadytrain-fresh-") as folder:
        return run_python(["-B", *arguments], wait_s=wait_s, folder=Path(folder), environment=environment)
