"""Runs one Python process for a bounded time and ends everything that it started (a compiler, for example)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from steadytrain.replay.child_processes import process_group


def run_python(
    arguments: Sequence[str], *, wait_s: float, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python with ``arguments`` in ``folder`` and ``environment``; by default in those of this process.

    Raises:
        subprocess.TimeoutExpired: the process took longer than ``wait_s`` seconds. It and its children were ended.
    """
    command = [sys.executable, *arguments]
    pipe = subprocess.PIPE
    with process_group(command, folder=folder, environment=environment, stdout=pipe, stderr=pipe) as child:
        out, err = child.communicate(timeout=wait_s)
    return subprocess.CompletedProcess(command, child.returncode, out, err)
