"""Run one process of ours for a bounded time, and end with it whatever it has started (a compiler, for one)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_python(
    arguments: Sequence[str], *, wait_s: float, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Python with ``arguments``, in ``folder`` and ``environment`` or in ours.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``wait_s`` and was ended, with all that it had started.
    """
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=wait_s)
        except BaseException:  # the time is over, or a person has interrupted
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)
