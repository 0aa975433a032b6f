"""Reads the host from ``/proc``, the control groups and the file system. On other systems than Linux most values are
absent."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from steadytrain.core.own_errors import own

UNLIMITED_BYTES = 1 << 60
"""Version 1 control groups mean "no limit" by a number just below 2^63."""

_KIB = 1024


class HostProbe:
    """Reads the columns of the host. Busy shares cover the time since the last reading.

    Args:
        folder: the run folder, or its future path.
        proc, control_groups: their mount points.
    """

    def __init__(
        self,
        folder: Path,
        *,
        proc: Path = Path("/proc"),
        control_groups: Path = Path("/sys/fs/cgroup"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._proc = proc
        self._control_groups = control_groups
        self._clock = clock
        self._busy_before: tuple[float, float] | None = None
        self._process_before: tuple[float, float] | None = None

    def read(self) -> dict[str, float]:
        """The columns that could be read. A host without swap reports 0 bytes of swap in use."""
        found: dict[str, float | None] = {}
        status = _fields(self._proc / "self" / "status")
        memory = _fields(self._proc / "meminfo")
        found["process_memory_bytes"] = status.get("VmRSS")
        found["process_memory_peak_bytes"] = status.get("VmHWM")
        found["available_memory_bytes"] = memory.get("MemAvailable")
        if memory.get("SwapTotal") and "SwapFree" in memory:
            found["swap_used_bytes"] = memory["SwapTotal"] - memory["SwapFree"]
        limited = memory_limit(self._proc, self._control_groups)
        if limited is not None:
            found["memory_limit_bytes"], found["limited_memory_bytes"] = limited
        found["cpu_busy_share"] = self._busy_share()
        found["process_cpu_cores"] = self._process_cores()
        found["disk_free_bytes"] = _free_bytes(self._folder)
        return {name: value for name, value in found.items() if value is not None}

    def facts(self) -> dict[str, Any]:
        """Facts that do not change in a run: processor, cores, memory."""
        memory, limited = _fields(self._proc / "meminfo"), memory_limit(self._proc, self._control_groups)
        return {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor_name(self._proc / "cpuinfo"),
            "cores": os.cpu_count(),
            "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "memory_bytes": memory.get("MemTotal"),
            "memory_limit_bytes": limited[0] if limited else None,
        }

    def _busy_share(self) -> float | None:
        line = _text(self._proc / "stat").partition("\n")[0].split()
        ticks = [float(number) for number in line[1:9] if number.isdigit()]  # user time already includes guest time
        if len(ticks) < 5:
            return None
        now, before = (sum(ticks), ticks[3] + ticks[4]), self._busy_before  # idle time and I/O wait
        self._busy_before = now
        if before is None or now[0] <= before[0]:
            return None
        return min(1.0, max(0.0, 1.0 - (now[1] - before[1]) / (now[0] - before[0])))

    def _process_cores(self) -> float | None:
        now, before = (self._clock(), time.process_time()), self._process_before
        self._process_before = now
        if before is None or now[0] <= before[0]:
            return None
        return (now[1] - before[1]) / (now[0] - before[0])


def memory_limit(proc: Path, control_groups: Path) -> tuple[float, float | None] | None:
    """The tightest memory limit on this process and the memory in use under it, in bytes; None without a limit."""
    found = []
    for folder, limit_file, used_file in _memory_folders(proc, control_groups):
        limit, used = _number(folder / limit_file), _number(folder / used_file)
        if limit is not None and limit < UNLIMITED_BYTES:
            found.append((limit, used))
    return min(found, key=lambda entry: entry[0], default=None)


def _memory_folders(proc: Path, control_groups: Path) -> Iterator[tuple[Path, str, str]]:
    """The control groups of this process that may limit memory, from its own up to the top, of both versions."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, files = control_groups, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, files = control_groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.strip("/")
        # In a container the path may be the host's path; then only the mounted top exists.
        for candidate in dict.fromkeys([folder, *folder.parents, base]):
            if candidate.is_relative_to(base):
                yield candidate, *files


def _fields(path: Path) -> dict[str, float]:
    """Lines of the form ``Name:  12 kB``, in bytes."""
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        parts = value.split()
        if len(parts) == 2 and parts[1] == "kB" and parts[0].isdigit():
            found[name] = float(parts[0]) * _KIB
    return found


def _number(path: Path) -> float | None:
    text = _text(path).strip()
    return float(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except own(OSError):
        return ""


def _free_bytes(folder: Path) -> float | None:
    for candidate in (folder, *folder.parents):  # the run folder is created at the first step
        try:
            return float(shutil.disk_usage(candidate).free)
        except FileNotFoundError:
            continue
        except own(OSError):
            return None
    return None


def _processor_name(cpuinfo: Path) -> str | None:
    for line in _text(cpuinfo).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or None
