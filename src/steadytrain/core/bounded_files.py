"""Open and read files that may be damaged or hostile: regular files only, within a bound, and never mostly holes.

Every reader of a run, bundle, log, checkpoint or data file opens it here, or calls :func:`check_size` before another
library reads it. A file of 20 GB that holds nothing costs its author nothing, and would cost its reader 20 GB.
"""

from __future__ import annotations

import json
import os
import resource
import stat
from pathlib import Path
from typing import Any, BinaryIO

from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own

HOLLOW_BYTES_MIN = 16 << 20
"""A smaller file is read as it is: its holes cost little."""

HOLLOW_SHARE_MIN = 0.25
"""Share of a file that must be data. No writer of ours, and none of a log or data set, leaves holes."""

EXTENTS_MAX = 1_000
"""Stretches of data that are counted in a file that has few blocks."""

MEMORY_SHARE_MAX = 0.5
"""Share of the free memory that the content of one file may take."""

DOCUMENT_BYTES_MAX = 256 << 20
"""The largest JSON document that is read where its format has no bound of its own."""

CHECKED_BYTES_MIN = 32 << 20
"""A smaller content is read without asking how much memory is free."""

_NESTED_BYTES, _ENTRY_BYTES = 72, 48
"""Memory of an empty list or object, and of a further entry with its share of the table (CPython 3.11, 64 bit)."""


def open_regular(path: Path | str) -> BinaryIO:
    """Open a file for reading. A pipe does not block, and a folder, pipe or device is refused.

    Raises:
        UsageError: not a regular file, or mostly holes.
        OSError: it cannot be opened.
    """
    # Python's own open() would wait for the writer of a pipe.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, file)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def check_size(path: Path | str, *, bytes_max: int | None = None, memory_times: float = 0.0) -> int:
    """The size of a file in bytes, before another library opens it.

    Args:
        path: the file.
        bytes_max: the largest size that is read.
        memory_times: memory that its reader takes, as a multiple of the size; 0 if that does not grow with the size.

    Raises:
        UsageError: not a regular file, mostly holes, or too large.
        OSError: it cannot be opened.
    """
    with open_regular(path) as file:
        return _bounded(path, file, bytes_max=bytes_max, memory_times=memory_times)


def read_bytes(path: Path | str, *, bytes_max: int) -> bytes:
    """The content of a file.

    Raises:
        UsageError: not a regular file, mostly holes, or larger than ``bytes_max`` or than the free memory allows.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        size = _bounded(path, file, bytes_max=bytes_max, memory_times=1.0)
        return file.read(size)  # what was appended since then is left


def read_json(path: Path | str, *, bytes_max: int) -> Any:
    """The JSON document in a file, in UTF-8.

    Raises:
        UsageError: as :func:`read_bytes`, or its values would not fit in memory.
        OSError: it cannot be read.
        ValueError: not JSON in UTF-8, or nested too deep.
    """
    raw = read_bytes(path, bytes_max=bytes_max)
    check_json(raw, path)
    try:
        return json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def check_json(raw: bytes | str, path: Path | str) -> None:
    """Check that the values of a JSON document fit in memory: two bytes of it can take seventy.

    Raises:
        UsageError: they do not.
    """
    if len(raw) * _NESTED_BYTES // 2 <= CHECKED_BYTES_MIN:
        return
    if isinstance(raw, str):
        nested, entries = raw.count("[") + raw.count("{"), raw.count(",")
    else:
        nested, entries = raw.count(b"[") + raw.count(b"{"), raw.count(b",")
    need = 3 * len(raw) + _NESTED_BYTES * nested + _ENTRY_BYTES * entries
    check_memory(path, need)


def free_memory_bytes() -> int | None:
    """Memory that this process can still take: of the machine, its control group and its own limit; None if unknown."""
    free = [_machine_bytes(), _group_bytes(), _own_bytes()]
    return min((found for found in free if found is not None), default=None)


def _bounded(path: Path | str, file: BinaryIO, *, bytes_max: int | None, memory_times: float) -> int:
    size = os.fstat(file.fileno()).st_size
    if bytes_max is not None and size > bytes_max:
        raise UsageError(f"{path}: {_size(size)}, larger than the {_size(bytes_max)} that are read; refused")
    if memory_times:
        check_memory(path, int(size * memory_times))
    return size


def _check(path: Path | str, file: int) -> None:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "pipe or device"
        raise UsageError(f"{path}: a {kind}, not a file")
    if found.st_size <= HOLLOW_BYTES_MIN or found.st_blocks * 512 >= found.st_size * HOLLOW_SHARE_MIN:
        return
    # Few blocks can also mean compression, or a file system that does not count them. Those report no holes.
    data = _data_bytes(file, found.st_size)
    if data < found.st_size * HOLLOW_SHARE_MIN:
        raise UsageError(f"{path}: {_size(found.st_size)}, of which only {_size(data)} were written; refused")


def _data_bytes(file: int, size: int) -> int:
    """Bytes of a file outside holes, counted over the first stretches of data."""
    data = at = 0
    try:
        for _ in range(EXTENTS_MAX):
            begin = os.lseek(file, at, os.SEEK_DATA)
            at = os.lseek(file, begin, os.SEEK_HOLE)
            data += at - begin
            if at >= size:
                break
    except own(OSError):  # no data from here on
        pass
    finally:
        os.lseek(file, 0, os.SEEK_SET)
    return data


def check_memory(path: Path | str, need: int) -> None:
    """Check that ``need`` bytes of memory are free for what a file holds.

    Raises:
        UsageError: they are not.
    """
    if need <= CHECKED_BYTES_MIN:
        return
    free = free_memory_bytes()
    if free is not None and need > free * MEMORY_SHARE_MAX:
        raise UsageError(f"{path}: reading it takes {_size(need)} of memory, and {_size(free)} are free; refused")


def _machine_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except own(OSError, StopIteration, ValueError, IndexError):
        return None


def _group_bytes() -> int | None:
    """What the control group of a container leaves."""
    try:
        limit, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="ascii")) for name in ("max", "current")
        )
    except own(OSError, ValueError):  # no such group, or no limit ("max")
        return None
    return max(0, limit - used)


def _own_bytes() -> int | None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return max(0, limit - int(file.read().split()[0]) * resource.getpagesize())
    except own(OSError, ValueError, IndexError):
        return limit


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB" if count >= 1 << 20 else f"{count:,} bytes"
