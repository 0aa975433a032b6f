"""Which process wrote something, so that a later one can tell whether it is gone."""

from __future__ import annotations

import os
import platform
import re
import zlib
from pathlib import Path
from typing import Literal

from steadytrain.core.own_errors import own, unless_it_fails

MARK = r"[0-9a-f]{8}-\d{1,10}"
_MARK = re.compile(MARK)
ENDED_STATES = ("Z", "X")
"""A process in one of these states has ended, and its parent has not asked yet how."""

_STATE_FIELD = 0
_PARENT_FIELD = 1
_START_FIELD = 19
"""Places of the state, the parent and the start time in ``/proc/PID/stat``, behind the program name, which may hold
blanks."""


def process_mark() -> str:
    """A name of this process that no other living process on any machine is likely to have."""
    return f"{_host()}-{os.getpid()}"


def is_gone(mark: object) -> bool:
    """Whether ``mark`` is of a process of this machine that has ended. False if that cannot be known."""
    if not isinstance(mark, str) or not _MARK.fullmatch(mark):
        return False
    host, _, process = mark.partition("-")
    return host == _host() and not _is_alive(int(process))


def process_start(process: int | None = None) -> int | None:
    """When a process started, in clock ticks since the machine did; by default this one. None if that is not known."""
    return _status_field(process or os.getpid(), _START_FIELD)


def parent_of(process: int) -> int | None:
    """The process that started another one. None if that is not known."""
    return _status_field(process, _PARENT_FIELD)


def _status_field(process: int, place: int) -> int | None:
    try:
        return int(_status(process)[place])
    except own(OSError, ValueError, IndexError):
        return None


def _status(process: int) -> list[str]:
    text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def state_of(mark: object, start: object) -> Literal["running", "gone"] | None:
    """Whether the process of ``mark`` that started at ``start`` still runs. None if that cannot be known.

    A number is given to a new process after a while, so a living number alone is not enough.
    """
    if is_gone(mark):
        return "gone"
    if not isinstance(mark, str) or not _MARK.fullmatch(mark) or not isinstance(start, int):
        return None
    host, _, process = mark.partition("-")
    now = process_start(int(process)) if host == _host() else None
    if now is None:
        return None
    return "running" if now == start else "gone"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except own(OSError, OverflowError):
        return True
    with unless_it_fails(OSError, IndexError):
        return _status(process)[_STATE_FIELD] not in ENDED_STATES
    return True


def _host() -> str:
    """This machine, and the numbering of its processes: containers may share a name and a folder."""
    namespace = ""
    with unless_it_fails(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{platform.node()}{namespace}'.encode()):08x}"
