"""Keep a run folder bounded while the run continues: a thread that thins and compacts closed parts.

The thread works on files only and shares nothing with the training thread but two events. It sleeps four fifths of the
time, even in the middle of a file, because its Python code competes with the training thread for the interpreter's
lock. It runs at normal priority on purpose: a low-priority thread that holds the lock would block training.

``thinning.py`` decides what is kept, and ``compaction.py`` rewrites the files.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from steadytrain.storage.compaction import Known, MayGoOn, compact_steps, compact_table
from steadytrain.storage.run_folder import notable_steps

PERIOD_S = 5.0
"""How often the thread looks for closed segments. A pass that finds none costs a few directory listings."""

BUSY_SHARE = 0.2
CLOSE_WAIT_S = 2.0
FAILURES_MAX = 3
"""Failures in a row after which the thread gives up. A full disk stays full, and repeated messages do not help."""


class Keeper:
    """The retention thread of one run folder. It calls ``on_error`` for each error, in the thread; training continues.

    A forked process has no such thread, and there ``wake`` and ``close`` do nothing.
    """

    def __init__(self, run: Path, on_error: Callable[[Exception], None]) -> None:
        self._run = run
        self._on_error = on_error
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._rested_at = 0.0

    def start(self) -> None:
        """Start the thread unless it is running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="steadytrain-retention", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look for closed segments now instead of within ``PERIOD_S``."""
        if os.getpid() == self._process:
            self._woken.set()

    def close(self) -> None:
        """Stop within ``CLOSE_WAIT_S``. An unfinished file is discarded; its sources stay."""
        if self._thread is None or os.getpid() != self._process:
            return
        self._stopping.set()
        self._woken.set()
        self._thread.join(CLOSE_WAIT_S)

    def _work(self) -> None:
        known: dict[Path, Known] = {}
        seen: dict[Path, list[str]] = {}
        failures = 0
        self._rested_at = time.thread_time()
        while not self._stopping.is_set():
            try:
                keep_run(self._run, known, seen, self._rest)
                failures = 0
            except Exception as error:
                failures += 1
                self._on_error(error)
                if failures >= FAILURES_MAX:
                    return
            self._woken.wait(PERIOD_S * 2**failures)
            self._woken.clear()

    def _rest(self) -> bool:
        """Sleep in proportion to the work since the last sleep. False if the thread should stop."""
        worked = time.thread_time() - self._rested_at
        self._stopping.wait(worked * (1 / BUSY_SHARE - 1))
        self._rested_at = time.thread_time()
        return not self._stopping.is_set()


def keep_run(run: Path, known: dict[Path, Known], seen: dict[Path, list[str]], may_go_on: MayGoOn) -> None:
    """Compact every stream and table of ``run`` whose files differ from the listing in ``seen``."""
    for folder in sorted((run / "steps").glob("*")):
        names = _names(folder)
        if names != seen.get(folder):
            compact_steps(folder, places=notable_steps(run, folder.name), may_go_on=may_go_on)
            seen[folder] = names
    for folder in sorted((run / "tables").glob("*/*")):
        names = _names(folder)
        if names != seen.get(folder):
            places = notable_steps(run, folder.parent.name)
            compact_table(folder, places=places, known=known.setdefault(folder, {}), may_go_on=may_go_on)
            seen[folder] = names


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))
