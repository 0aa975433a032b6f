"""Files that stay open while the script runs, in descriptors that the script may close.

A script may close all inherited descriptors (``os.closerange``, as daemons do) and open its own files, which then get
the same numbers. A number alone therefore says nothing: a descriptor is ours only if it still leads to our file.
"""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steadytrain.core.own_errors import own

FileId = tuple[int, int]
"""Device and inode."""


def file_id(descriptor: int) -> FileId | None:
    """What an open descriptor leads to; None if it is closed."""
    try:
        found = os.fstat(descriptor)
    except own(OSError):
        return None
    return found.st_dev, found.st_ino


class OwnFile:
    """A file open for appending or reading, by path. It is opened again if the script took its descriptor.

    Raises:
        OSError: the file cannot be opened; on use, it cannot be opened again, or another file is in its place.
    """

    def __init__(self, path: Path, flags: int, mode: int = 0o644) -> None:
        self._path = path
        self._again = flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        self._id = file_id(self._descriptor)

    @property
    def is_ours(self) -> bool:
        """Whether the descriptor still leads to this file."""
        return file_id(self._descriptor) == self._id

    def descriptor(self) -> int:
        """A descriptor of this file."""
        if not self.is_ours:
            descriptor = os.open(self._path, self._again | os.O_CLOEXEC)
            if file_id(descriptor) != self._id:
                os.close(descriptor)
                raise OSError(f"the script closed our descriptor of {self._path}, and another file is there now")
            self._descriptor = descriptor
        return self._descriptor

    def write(self, data: bytes | memoryview) -> int:
        """Append with one ``write``, and what it did not take with more. Returns the number of bytes written."""
        written = os.write(self.descriptor(), data)
        while written < len(data):
            try:
                more = os.write(self.descriptor(), memoryview(data)[written:])
            except own(OSError):
                break  # the caller cuts a torn record off
            if more == 0:
                break
            written += more
        return written

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor(), size)

    def close(self) -> None:
        if self.is_ours:
            os.close(self._descriptor)
        self._descriptor = -1


class OwnStream(io.RawIOBase):
    """An :class:`OwnFile` as an unbuffered binary stream, for libraries that write to one.

    Raises:
        OSError: as :class:`OwnFile`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = OwnFile(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self._file.write(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def abandon(holder: object) -> None:
    """Keep an object for ever, whose destruction would close or write to descriptors that are no longer ours.

    At the end of the process, too, it is not destroyed.
    """
    increment: Callable[[ctypes.py_object[Any]], None] = ctypes.pythonapi.Py_IncRef
    increment(ctypes.py_object(holder))


def descriptors_below(folder: Path) -> dict[int, FileId]:
    """The descriptors of this process that lead to files in ``folder``. Empty where ``/proc`` does not list them."""
    found: dict[int, FileId] = {}
    start = os.path.realpath(folder) + os.sep
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except own(OSError):
        return found
    for number in numbers:
        try:
            where = os.readlink(f"/proc/self/fd/{number}")
        except own(OSError):
            continue
        identity = file_id(number)
        if where.startswith(start) and identity is not None:
            found[number] = identity
    return found
