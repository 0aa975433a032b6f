"""Seconds that the training thread waits for its data loaders, gathered until a step takes them."""

from __future__ import annotations

import time
from collections.abc import Callable

OPEN_MAX = 16


class DataWait:
    """Time inside data loaders since the last :meth:`take`.

    A loader that reads from another one is counted once. A fetch that ends its loader raises and has no end here: it is
    still open when the step takes the sum, and what came after it counts for itself.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._open: list[tuple[int, float]] = []
        self._waited_s = 0.0
        self._inner_s = 0.0

    def begins(self, iterator: object) -> None:
        """``iterator`` is asked for its next batch."""
        if len(self._open) >= OPEN_MAX:
            del self._open[0]  # it has ended long ago: nobody nests loaders as deep
        self._open.append((id(iterator), self._clock()))

    def ends(self, iterator: object) -> None:
        """It gave one."""
        at = max((at for at, (number, _) in enumerate(self._open) if number == id(iterator)), default=None)
        if at is None:
            return
        elapsed = self._clock() - self._open[at][1]
        del self._open[at:]
        if at == 0:
            self._waited_s, self._inner_s = self._waited_s + elapsed, 0.0
        else:
            self._inner_s += elapsed

    def take(self) -> float:
        """Seconds waited since the last call. Evaluation in between is part of it, as it is of ``step_s``."""
        waited = self._waited_s + self._inner_s
        self._open.clear()
        self._waited_s = self._inner_s = 0.0
        return waited
