"""Threads of a process that is to fork: those of OpenMP can be released, those of the script cannot.

A fork has only the thread that forked. OpenMP's pool would wait there for threads that do not exist. OpenMP 5.0 has a
call that releases the pool (``omp_pause_resource_all``); the next parallel operation starts a new one, in parent and
fork alike. The number of threads stays as it was, and so does every result to the last bit.
"""

from __future__ import annotations

import ctypes
import re
import threading

HARD = 2
"""``omp_pause_hard`` of ``omp_pause_resource_t``: the runtime also gives its memory back."""

HARMLESS = ("TMonitor",)

_RUNTIME = re.compile(r"/lib(?:gomp|omp|iomp5)[^/]*\.so[^/]*$")


def release() -> bool:
    """Ends the pools of every loaded OpenMP runtime. False if a runtime cannot do that, or none is found: then a fork
    must compute on one thread."""
    paths = _runtimes()
    return bool(paths) and all(_paused(path) for path in paths)


def of_the_script() -> list[str]:
    """The names of the Python threads that a fork would miss: a writer of TensorBoard would wait for its thread for
    ever. The monitor of tqdm only redraws bars."""
    here = threading.current_thread()
    running = (thread for thread in threading.enumerate() if thread is not here)
    return [thread.name for thread in running if type(thread).__name__ not in HARMLESS]


def _paused(path: str) -> bool:
    try:
        return int(ctypes.CDLL(path).omp_pause_resource_all(HARD)) == 0
    except (OSError, AttributeError):  # gone, or older than OpenMP 5.0
        return False


def _runtimes() -> list[str]:
    """The files of the OpenMP runtimes in this process; empty where the system does not say (not Linux)."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            mapped = {line.split(maxsplit=5)[5].strip() for line in file if line.count("/")}
    except OSError:
        return []
    return sorted(path for path in mapped if _RUNTIME.search(path))
