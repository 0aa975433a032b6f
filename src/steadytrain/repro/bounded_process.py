"""Run one process of ours for a bounded time, and end with it whatever it has started (a compiler, for one)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from steadytrain.replay.child_processes import process_group


def run_python(
    arguments: Sequence[str], *, wait_s: float, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Python with ``arguments``, in ``folder`` and ``environment`` or in ours.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``wait_s`` and was ended, with all that it had started.
    """
    command = [sys.executable, *arguments]
    pipe = subprocess.PIPE
    with process_group(command, folder=folder, environment=environment, stdout=pipe, stderr=pipe) as child:
        out, err = child.communicate(timeout=wait_s)
    return subprocess.CompletedProcess(command, child.returncode, out, err)
