"""Processes that commands launch, and their end: whatever ends the command, nothing of what it launched goes on.

A launched process leads a group of its own, so that what it has started (loader workers, servers, a compiler) ends with
it. An interruption or a signal that asks the command to end becomes an exception in it, so that temporary folders are
taken away on the way out. A command that is killed outright takes the launched process with it, on Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

PR_SET_PDEATHSIG = 1
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""`timeout`, a batch system or a closed terminal sends these; Ctrl-C is an exception already."""

SIGNAL_STATUS = 128
"""A shell says so: a process that a signal ended has this status and the signal's number."""

LOOK_S = 0.05


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
    """``command``, leading a group of its own without input; at the end of the block the whole group is ended.

    ``grace_s``: for so long what is left is asked to end by itself, for one that has to tidy up. Else it is killed.
    """
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=None if environment is None else dict(environment),
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
    """A group lives as long as one of it does, also where its leader is gone."""
    with suppress(ProcessLookupError):
        if grace_s:
            os.killpg(child.pid, signal.SIGTERM)
            until = time.monotonic() + grace_s
            while time.monotonic() < until:
                child.poll()  # a leader that has ended and was not asked for still counts
                os.killpg(child.pid, 0)
                time.sleep(LOOK_S)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """A signal that asks this process to end is raised as ``SystemExit`` in this block, so that it is tidied up.

    A signal that is ignored (``nohup``), or that somebody else handles, stays as it is.
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
    for other in ENDING_SIGNALS:  # a second one must not interrupt the tidying up
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(SIGNAL_STATUS + number)


def die_with_parent() -> None:
    """Let this process be killed when the one that made it is gone (Linux; elsewhere the bound of time has to do)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
