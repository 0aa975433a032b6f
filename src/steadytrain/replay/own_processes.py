"""Tells the processes of a launched script from others of this machine: their servers, shared memory, priorities.

A script that runs again would send its steps a second time to a tracker, a database or a saving process on the same
machine. So it reaches only servers that it started itself. It writes to a private copy of shared memory that was there
before.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from steadytrain.capture.hooks.import_hook import after_import
from steadytrain.replay.programs import SHARED_MEMORY

NO_SERVER = "a relaunched script reaches only servers that it started (steadytrain: --allow-network)"
NO_PROCESS = "a relaunched script changes only processes that it started (steadytrain)"
LISTENS = "0A"
TABLES = {socket.SOCK_STREAM: ("tcp", "tcp6"), socket.SOCK_DGRAM: ("udp", "udp6")}
CHUNK = 1 << 20

_open, _read, _listdir, _readlink, _stat = os.open, os.read, os.listdir, os.readlink, os.stat
"""Python's own, from before the sandbox replaced them."""


class OwnProcesses:
    """Those of this session, and those that have ``mark`` in their environment.

    Args:
        mark: a text that only the environment of processes of this launch holds; "" for none.
        since: when the launch began, in seconds since the epoch.
    """

    def __init__(self, mark: str, since: float | None = None) -> None:
        self._session = os.getsid(0)
        self._mark = mark.encode()
        self.since = time.time() if since is None else since

    def has(self, process: int) -> bool:
        """Whether the script started ``process``. One without an environment is as its parent is: a program that has
        only just started shows none yet."""
        with suppress(OSError, ValueError):
            if process == 0 or os.getsid(process) == self._session:
                return process != 0
            environment = _content(f"/proc/{process}/environ")
            return bool(self._mark) and (self._mark in environment if environment else self.has(_parent(process)))
        return False

    def refuse_others(self, path: Any) -> None:
        """Raise ``PermissionError`` before writing to a file of a process that the script did not start: below
        ``/proc``, or in shared memory."""
        path = os.fsdecode(path)
        first = path.removeprefix("/proc/").partition("/")[0]
        is_theirs = path.startswith("/proc/") and first.isdigit() and not self.has(int(first))
        if is_theirs or (path.startswith(SHARED_MEMORY) and self._was_there(path.removeprefix(SHARED_MEMORY))):
            raise PermissionError(errno.EACCES, NO_PROCESS, path)

    def limit(self, args: tuple[Any, ...]) -> None:
        """The audit event of ``resource.prlimit``."""
        if len(args) > 2 and args[2] is not None and args[0] and not self.has(int(args[0])):
            raise PermissionError(errno.EPERM, NO_PROCESS)

    def connection(self, args: tuple[Any, ...]) -> None:
        """The audit events of connecting and sending: ``ConnectionRefusedError`` where another process listens."""
        own_socket, address = args[0], args[1] if len(args) > 1 else None
        listening = set(_listening(own_socket, address))
        if listening and not listening & set(self._sockets()):
            raise ConnectionRefusedError(errno.ECONNREFUSED, NO_SERVER)

    def _sockets(self) -> Iterator[str]:
        """The inodes of the sockets of these processes."""
        for name in _listdir("/proc"):
            if name.isdigit() and self.has(int(name)):
                with suppress(OSError):
                    for descriptor in _listdir(f"/proc/{name}/fd"):
                        with suppress(OSError):
                            yield _readlink(f"/proc/{name}/fd/{descriptor}").partition("[")[2][:-1]

    def replace_functions(self) -> None:
        """Replace, for good, what Python does not report: priorities of other processes, and shared memory."""
        for name in ("setpriority", "sched_setaffinity", "sched_setscheduler", "sched_setparam"):
            theirs = getattr(os, name, None)
            if theirs is not None:
                setattr(os, name, self._of_own(theirs, place=int(name == "setpriority")))
        after_import("_posixshmem", self._copy_shared_memory)

    def _of_own(self, theirs: Callable[..., Any], place: int) -> Callable[..., Any]:
        def ours(*args: Any) -> Any:
            given = args[place] if len(args) > place else 0
            if given and not self.has(int(given)):
                raise PermissionError(errno.EPERM, NO_PROCESS)
            return theirs(*args)

        return ours

    def _copy_shared_memory(self) -> None:
        module: Any = sys.modules["_posixshmem"]
        theirs = module.shm_open

        def ours(path: str, flags: int, mode: int = 0o777) -> int:
            if self._was_there(path) and not flags & os.O_EXCL:
                return _copied(theirs(path, os.O_RDONLY, mode), path)
            descriptor: int = theirs(path, flags, mode)
            return descriptor

        module.shm_open, unlink = ours, module.shm_unlink
        module.shm_unlink = lambda path: None if self._was_there(path) else unlink(path)

    def _was_there(self, path: str) -> bool:
        """Whether a segment is older than this launch."""
        with suppress(OSError):
            return _stat(SHARED_MEMORY + path.removeprefix("/")).st_ctime < self.since
        return False


def _listening(own_socket: Any, address: Any) -> Iterator[str]:
    """The inodes of the sockets of this machine that would get what is sent to ``address``; none if that is unknown."""
    kind = getattr(own_socket, "type", None)
    with suppress(OSError, ValueError, IndexError):
        if getattr(own_socket, "family", None) == socket.AF_UNIX and isinstance(address, (str, bytes)):
            yield from _at_path(os.fsdecode(address))
        elif isinstance(address, tuple) and len(address) > 1 and kind in TABLES:
            for table in TABLES[kind]:
                yield from _at_port(table, int(address[1]), LISTENS if kind == socket.SOCK_STREAM else None)


def _at_port(table: str, port: int, state: str | None) -> Iterator[str]:
    for line in _content(f"/proc/net/{table}").decode().splitlines()[1:]:
        words = line.split()
        if int(words[1].rpartition(":")[2], 16) == port and state in (None, words[3]):
            yield words[9]


def _at_path(address: str) -> Iterator[str]:
    """By the name under which it was bound, which may be relative to another folder: then the file's name decides."""
    abstract = address.startswith("\0")
    wanted = "@" + address[1:] if abstract else os.path.basename(address)
    for line in _content("/proc/net/unix").decode(errors="surrogateescape").splitlines()[1:]:
        words = line.split(maxsplit=7)
        if len(words) == 8 and (words[7] if abstract else os.path.basename(words[7])) == wanted:
            yield words[6]


def _parent(process: int) -> int:
    """The number of its parent, from the words after its name, which may hold spaces and brackets; 0 for none."""
    return int(_content(f"/proc/{process}/stat").rpartition(b")")[2].split()[1])


def _content(path: str) -> bytes:
    descriptor = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := _read(descriptor, CHUNK):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _copied(shared: int, path: str) -> int:
    """A descriptor of a private copy of shared memory."""
    try:
        copy = os.memfd_create(os.path.basename(path))
        size, place = os.fstat(shared).st_size, 0
        os.ftruncate(copy, size)
        while place < size and (part := os.pread(shared, CHUNK, place)):
            place += os.pwrite(copy, part, place)
        return copy
    finally:
        os.close(shared)
