"""Notes in the run folder that a signal came, and where the script was then.

Schedulers, containers and people end a process by SIGTERM; SLURM does at preemption, at the time limit, by
``scancel``. The note is made in C, by ``faulthandler``, in the moment in which the signal comes, and the signal then
does what it would do without us. So nothing waits for Python: a handler in Python would wait for a native call that
hangs. What ``signal.getsignal`` returns stays as it is, a handler that the script has runs, and one that it sets later
replaces ours.

The note holds the stack of the thread that got the signal, the main one unless the script blocks it there. The frames
of other threads change while they are read, which ends the process by SIGSEGV now and then.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
from pathlib import Path

from steadytrain.core.own_errors import unless_it_fails
from steadytrain.storage.signal_notes import FOLDER, note_name

SIGNALS = ("SIGTERM",)
OF_SLURM = (*SIGNALS, "SIGUSR1", "SIGUSR2")
"""Also those that its ``--signal`` is used with."""

DESCRIPTOR_MIN = 512
"""Our descriptors are so high that a script that closes all of them, and opens its own, does not get the same ones."""

_own: list[int] = []
"""Signals that are noted. It is never undone: taking our handler out would take out one that the script set later."""

_nowhere: int | None = None


def note_signals(run: Path) -> None:
    """Note in the folder ``run`` the signals that come from now on: SIGTERM, and in a SLURM job those of its users.

    Raises:
        OSError: the notes cannot be opened.
    """
    global _nowhere
    if not hasattr(faulthandler, "register"):
        return
    if _nowhere is None:
        _nowhere = _high(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
        os.register_at_fork(after_in_child=_forget)
    (run / FOLDER).mkdir(exist_ok=True)
    for name in OF_SLURM if os.environ.get("SLURM_JOB_ID") else SIGNALS:
        number = getattr(signal, name)
        path = run / FOLDER / note_name(name, ends=signal.getsignal(number) is signal.SIG_DFL)
        file = _high(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
        faulthandler.register(number, file=file, all_threads=False, chain=True)
        if number not in _own:
            _own.append(number)


def remove_empty_notes(run: Path) -> None:
    """At the end of a run: the notes of signals that did not come."""
    with unless_it_fails(OSError):
        for path in (run / FOLDER).iterdir():
            if path.stat().st_size == 0:
                path.unlink()
        (run / FOLDER).rmdir()


def _forget() -> None:
    """In a forked child: its signals are its own, and a loader's worker is ended by one."""
    if _nowhere is not None:
        for number in _own:
            faulthandler.register(number, file=_nowhere, all_threads=False, chain=True)


def _high(descriptor: int) -> int:
    """The same file under a high number."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR_MIN)
    finally:
        os.close(descriptor)
