"""Processor time of steadytrain's own threads, which write beside the training."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from steadytrain.core.own_errors import unless_it_fails

NAMES = "steadytrain-"
TASKS = Path("/proc/self/task")
AFTER_NAME, USER, SYSTEM = ")", 11, 12
"""Where the two times stand in a line of ``stat``, behind the name of the thread, which may hold blanks."""


def own_threads_s() -> float:
    """Seconds of processor time that the living threads of ours have used; 0 where the system does not tell."""
    ids = [one.native_id for one in threading.enumerate() if one.name.startswith(NAMES)]
    return sum(_used_s(one) for one in ids if one is not None)


def _used_s(thread: int) -> float:
    with unless_it_fails(OSError, ValueError, IndexError):
        values = (TASKS / str(thread) / "stat").read_text().rpartition(AFTER_NAME)[2].split()
        return (int(values[USER]) + int(values[SYSTEM])) / os.sysconf("SC_CLK_TCK")
    return 0.0
