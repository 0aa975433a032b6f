"""Seconds that count work: on a machine that others keep busy, a second counts only the share of it that is ours.

A budget in seconds of the wall clock would buy fewer trials on a busy machine, so the answer would depend on what else
runs there. The share is that of one process in a queue: cores over the load of the last minute, of which one is the
queue of this process itself. It never counts less than a quarter of a second, so that a budget ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from steadytrain.core.own_errors import own

SLOWER_MAX = 4.0
"""A second of work takes at most so many seconds of the wall clock."""

TOLD_MIN = 1.5
"""From so many seconds a second on, a command says so."""

OWN_LOAD = 1.0
"""The part of the load that is this process and what it waits for."""


def load_of_machine() -> float:
    """Processes that run or wait to run, mean of the last minute; 0 where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except own(AttributeError, OSError):
        return 0.0


class WorkTime:
    """A clock like ``time.monotonic`` that goes slower while the machine is busy. Threads may share it.

    Args:
        now: seconds of the wall clock.
        load: the load of the machine.
        cores: how many processes run at once.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        load: Callable[[], float] = load_of_machine,
        cores: int | None = None,
    ) -> None:
        self._now, self._load, self._cores = now, load, cores or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._seen = self._counted = now()

    def __call__(self) -> float:
        with self._lock:
            now = self._now()
            self._counted += (now - self._seen) / self.slower()
            self._seen = now
            return self._counted

    def slower(self) -> float:
        """How many seconds of the wall clock a second of work takes now, 1 to ``SLOWER_MAX``."""
        return min(SLOWER_MAX, max(1.0, (self._load() - OWN_LOAD) / self._cores))

    def note(self) -> str:
        """What to add to a line of progress while the machine is busy, "" if it is not."""
        slower = self.slower()
        return f" (busy machine: a second of the budget takes {slower:.1f} s)" if slower >= TOLD_MIN else ""


work_time = WorkTime()
"""The clock of this process."""
