"""Launched process groups and their end: when a command ends, everything that it launched ends too.

A launched process leads its own process group, so its children (loader workers, servers, a compiler) end with it. A
termination signal becomes an exception in the command, so temporary folders are removed. On Linux, a command that is
killed takes its launched processes with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

PR_SET_PDEATHSIG = 1
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Sent by `timeout`, batch systems and closed terminals. Ctrl-C is an exception already."""

SIGNAL_STATUS = 128
"""Shell convention: a process that a signal ended has the status 128 plus the signal's number."""

LOOK_S = 0.05

WAIT_POLICY, SPINS = "OMP_WAIT_POLICY", ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""How threads of OpenMP wait for each other, and the variables by which a user decides it."""

_lock = threading.Lock()
_first: list[Callable[[], None]] = []
"""What is called before the first process starts; emptied by it."""


@contextmanager
def calling_before_the_first(call: Callable[[], None]) -> Iterator[None]:
    """``call`` runs once in this block, before the first process starts. If it raises, none starts."""
    _first[:] = [call]
    try:
        yield
    finally:
        _first.clear()


def about_to_launch() -> None:
    """To be called before a process starts. Raises what the call raises."""
    with _lock:
        if _first:
            _first[0]()
            _first.clear()


def sharing_cores(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` for a process that shares the cores with others: its idle threads sleep instead of spinning.

    Two replays side by side, of two threads each on two cores, take half the time so. No result depends on it.
    """
    return dict(environment) if any(name in environment for name in SPINS) else {**environment, WAIT_POLICY: "PASSIVE"}


@contextmanager
def process_group(
    command: Sequence[str],
    *,
    folder: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    grace_s: float = 0.0,
) -> Iterator[subprocess.Popen[str]]:
    """Runs ``command`` as leader of a new process group without stdin. The whole group ends with the block.

    With ``grace_s`` the group first gets SIGTERM and up to ``grace_s`` seconds to clean up. Then it is killed.
    """
    about_to_launch()
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=sharing_cores(os.environ if environment is None else environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield child
    finally:
        _end_group(child, grace_s)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _end_group(child: subprocess.Popen[str], grace_s: float) -> None:
    """Ends the group, also if its leader is already gone."""
    with suppress(ProcessLookupError):
        if grace_s:
            os.killpg(child.pid, signal.SIGTERM)
            until = time.monotonic() + grace_s
            while time.monotonic() < until:
                child.poll()  # reap a leader that has ended: it still counts as a group member
                os.killpg(child.pid, 0)
                time.sleep(LOOK_S)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Raises SIGTERM and SIGHUP as ``SystemExit`` in this block, so that cleanup code runs.

    Ignored signals (``nohup``) and signals with another handler stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    ours = [number for number in ENDING_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    for other in ENDING_SIGNALS:  # a second signal must not interrupt the cleanup
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(SIGNAL_STATUS + number)


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent ends (Linux only; elsewhere time limits apply)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
