"""A worker of the pool: a thread that feeds at most one launched script, which waits where trials begin.

Each trial is bounded in time and memory, and retried once if its process was killed. Torch-free.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from steadytrain.core.work_time import work_time
from steadytrain.experiments.specs import NO_TIME_LEFT, Outcome, Spec
from steadytrain.trial_runs.server_process import tail_of
from steadytrain.trial_runs.socket_messages import Line

LAUNCH_S_MAX = 900.0
"""Time limit in seconds for the script's imports, set-up and own steps."""

LOOK_S = 0.2
TELL_S = 10.0
"""Seconds between two lines of progress."""

KILLED_MAX = 2
"""A trial is given up after its process was killed this many times."""


class Desk(Protocol):
    """The pool as a worker sees it."""

    @property
    def scratch(self) -> Path: ...

    @property
    def trial_s_max(self) -> float: ...

    @property
    def memory_bytes_max(self) -> int: ...

    def launch_key(self, spec: Spec) -> str: ...

    def connect(
        self, key: str, spec: Spec, log: Path, *, source: Path | None = None, variables: Mapping[str, str] = {}
    ) -> Line: ...

    def next_spec(self, key: str | None, until: float | None) -> tuple[Spec, int] | None: ...

    def again(self, spec: Spec, tries: int) -> None: ...

    def tell(self, text: str) -> None: ...


class Worker:
    """Holds at most one launched script and sends it specs."""

    def __init__(self, desk: Desk, number: int) -> None:
        self._desk = desk
        self._number = number
        self._launches = 0
        self._key: str | None = None
        self._line: Line | None = None
        self._group = 0
        self._shared = False
        self._log = Path(os.devnull)

    def work(self, done: queue.Queue[Outcome | BaseException], until: float | None, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                taken = self._desk.next_spec(self._key, until)
                if taken is None:
                    return
                spec, tries = taken
                outcome = self._one(spec, stop, until)
                if outcome is None and not stop.is_set():
                    if tries + 1 < KILLED_MAX:
                        self._desk.again(spec, tries + 1)
                        continue
                    tail = tail_of(self._log)
                    why = f"its process was killed {KILLED_MAX} times{f'; it said: {tail}' if tail else ''}"
                    outcome = Outcome(spec, False, why)
                if outcome is not None:
                    done.put(outcome)
        except BaseException as error:
            done.put(error)

    def close(self) -> None:
        """Ends the launched script and everything that it started."""
        line, self._line, self._key = self._line, None, None
        if line is not None:
            if self._group:
                with contextlib.suppress(OSError):
                    os.killpg(self._group, signal.SIGKILL)
            line.close()
        self._group = 0

    def _one(self, spec: Spec, stop: threading.Event, until: float | None) -> Outcome | None:
        """Runs one spec; None if its process was killed from outside."""
        if self._key != self._desk.launch_key(spec) or self._line is None:
            self.close()
            why = self._launch(spec, stop, until)
            if why is not None:
                self.close()
                return Outcome(spec, False, why) if why else None
        assert self._line is not None
        out = self._desk.scratch / f"{spec.key}-{self._number}.json"
        out.unlink(missing_ok=True)
        try:
            self._line.send({"spec": spec.to_json(), "out": str(out)})
            why = self._wait(spec, stop, until)
        except (EOFError, OSError):
            why = ""
        if why is not None or not self._shared:
            self.close()
        if out.is_file():
            return Outcome.from_json(json.loads(out.read_text(encoding="utf-8")))
        return Outcome(spec, False, why) if why else None

    def _launch(self, spec: Spec, stop: threading.Event, budget_until: float | None) -> str | None:
        """Brings the script to the start of ``spec``. Returns None on success, "" if its process was killed, else the
        reason."""
        self._launches += 1
        self._log = self._desk.scratch / f"log-{self._number}-{self._launches}.txt"
        key = self._desk.launch_key(spec)
        self._line = self._desk.connect(key, spec, self._log)
        clock = Clock(self._desk, LAUNCH_S_MAX, budget_until, f"{spec.trial}: launched, on its way to the trials")
        try:
            while not clock.over() and not stop.is_set():
                message = self._line.receive(LOOK_S)
                if message is None:
                    continue
                if "refused" in message:
                    return str(message["refused"])
                if "group" in message:
                    self._group = int(message["group"])
                if "staged" in message:
                    self._key, self._shared = key, bool(message["shared"])
                    return None
        except EOFError:
            return ""
        if clock.spent:
            return NO_TIME_LEFT
        return f"the launched script took more than {LAUNCH_S_MAX:g} s to reach the start of the trials"

    def _wait(self, spec: Spec, stop: threading.Event, budget_until: float | None) -> str | None:
        """Waits for the end of the trial. Returns None on success, "" if its process is gone, else the reason of the
        abort."""
        assert self._line is not None
        clock = Clock(self._desk, self._desk.trial_s_max, budget_until, f"{spec.trial}: running")
        running = 0
        while not stop.is_set():
            message = self._line.receive(LOOK_S)
            if message is not None and "running" in message:
                running = int(message["running"])
            if message is not None and "refused" in message:
                return str(message["refused"])
            if message is not None and "ended" in message:
                return None if message["ended"] == 0 else ""
            if clock.over():
                return NO_TIME_LEFT if clock.spent else f"it took more than {self._desk.trial_s_max:g} s"
            if running and resident_bytes(running) > self._desk.memory_bytes_max:
                return f"it took more than {self._desk.memory_bytes_max / 1e9:.3g} GB of memory"
        return "it was interrupted"


class Clock:
    """The time limit of one launch or trial, which the budget of the whole may cut short; tells how long it has run."""

    def __init__(self, desk: Desk, limit_s: float, budget_until: float | None, what: str) -> None:
        self._desk, self._what = desk, what
        self._began = self._told = work_time()
        own = self._began + limit_s
        self._until = own if budget_until is None else min(own, budget_until)
        self._of_budget = self._until < own
        self.spent = False
        """Whether it is over because the budget is spent."""

    def over(self) -> bool:
        now = work_time()
        if now - self._told >= TELL_S:
            self._told = now
            self._desk.tell(f"{self._what} ({now - self._began:.0f} s)")
        self.spent = self._of_budget and now > self._until
        return now > self._until


def resident_bytes(process: int) -> int:
    """The memory of a process in bytes (Linux); 0 if unknown."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
