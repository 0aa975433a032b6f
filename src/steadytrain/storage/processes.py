"""Which process wrote something, so that a later one can tell whether it is gone."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import zlib

MARK = r"[0-9a-f]{8}-\d{1,10}"
_MARK = re.compile(MARK)


def process_mark() -> str:
    """A name of this process that no other living process on any machine is likely to have."""
    return f"{_host()}-{os.getpid()}"


def is_gone(mark: object) -> bool:
    """Whether ``mark`` is of a process of this machine that has ended. False if that cannot be known."""
    if not isinstance(mark, str) or not _MARK.fullmatch(mark):
        return False
    host, _, process = mark.partition("-")
    return host == _host() and not _is_alive(int(process))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _host() -> str:
    """This machine, and the numbering of its processes: containers may share a name and a folder."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{platform.node()}{namespace}'.encode()):08x}"
