"""What a query may take: time, memory, and room on the disk. Not here: the query itself (``query``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError  # another one than the built-in before Python 3.11
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from steadytrain.core.bounded_files import free_memory_bytes
from steadytrain.core.errors import UsageError

ANSWER_S_MAX = 60.0
MEMORY_BYTES_MAX = 4 << 30
MEMORY_SHARE_MAX = 0.5
"""Share of the free memory that a query may take, if that is less."""

INTERRUPT_EVERY_S = 0.05

SPILLED_BYTES_MAX = 8 << 30
"""What a query that needs more memory may write to the temporary folder."""


Result = TypeVar("Result")


@dataclass(frozen=True)
class Bounds:
    """What a query may take: seconds from its begin to its last row, and bytes of memory (None: by the machine)."""

    seconds: float = ANSWER_S_MAX
    memory_bytes: int | None = None

    @property
    def memory(self) -> int:
        if self.memory_bytes is not None:
            return self.memory_bytes
        free = free_memory_bytes()
        return MEMORY_BYTES_MAX if free is None else max(1, min(MEMORY_BYTES_MAX, int(free * MEMORY_SHARE_MAX)))


class Deadline:
    """The moment at which a query has taken its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


def settings(bounds: Bounds, folder: Path) -> dict[str, Any]:
    """DuckDB's settings for ``bounds``; it may write below ``folder``."""
    spilled = folder / "spilled"
    return {
        "memory_limit": f"{max(1, bounds.memory >> 10)}KiB",
        "temp_directory": str(spilled),
        "max_temp_directory_size": f"{SPILLED_BYTES_MAX >> 10}KiB",
    }


def interruptible(connection: Any, call: Callable[[], Result], deadline: Deadline) -> Result:
    """Run ``call`` in its own thread, because DuckDB does not check for Ctrl-C while its workers run.

    Raises:
        UsageError: the time is over.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            return future.result(deadline.left_s)
        except FutureTimeoutError:
            _interrupt(connection, future)
            raise UsageError(
                f"no answer within {deadline.seconds:g} s; ask for less, or allow more: --wait-s"
            ) from None
        except KeyboardInterrupt:
            _interrupt(connection, future)
            raise


def _interrupt(connection: Any, future: Future[Any]) -> None:
    """Interrupts until the call is over: DuckDB forgets an interrupt that comes right before its query begins."""
    while not future.done():
        connection.interrupt()
        wait([future], INTERRUPT_EVERY_S)
