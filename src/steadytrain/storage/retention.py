"""Keeps a run folder bounded while the run goes on: a thread that thins and compacts what is closed.

It works on files alone and shares nothing with the training thread but two events. It rests four fifths of the time,
also in the middle of a file, because what it does in Python takes turns with the training thread. It runs at the
ordinary priority on purpose: a thread of low priority that holds the interpreter's lock would make training wait.

What is kept is decided in ``thinning.py``, files are rewritten in ``compaction.py``.
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
"""How often it looks for segments that were closed; a look without any costs a few directory listings."""

BUSY_SHARE = 0.2
CLOSE_WAIT_S = 2.0
FAILURES_MAX = 3
"""Failures in a row after which it gives up: a disk that is full stays full, and the run must not be told for ever."""


class Keeper:
    """The thread for one run folder. Errors go to ``on_error``, called in the thread; then training goes on.

    A process that was forked has no such thread, and its ``wake`` and ``close`` do nothing.
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
        """Start the thread, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="steadytrain-retention", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Look now rather than within ``PERIOD_S``."""
        if os.getpid() == self._process:
            self._woken.set()

    def close(self) -> None:
        """Stop, within ``CLOSE_WAIT_S``. A file that is being written is given up; what it was made of stays."""
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
        """Sleep for what was worked since the last rest; False when it is time to stop."""
        worked = time.thread_time() - self._rested_at
        self._stopping.wait(worked * (1 / BUSY_SHARE - 1))
        self._rested_at = time.thread_time()
        return not self._stopping.is_set()


def keep_run(run: Path, known: dict[Path, Known], seen: dict[Path, list[str]], may_go_on: MayGoOn) -> None:
    """One look at every stream and table of ``run``: those whose files are not as they were ``seen`` are compacted."""
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
