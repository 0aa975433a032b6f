"""Measures how long the training thread waits for its data loaders in each step."""

from __future__ import annotations

import time
from collections.abc import Callable

OPEN_MAX = 16


class DataWait:
    """Time inside data loaders since the last :meth:`take`, in seconds.

    If a loader reads from another loader, the time counts once. The fetch that exhausts a loader raises, so ``ends`` is
    not called for it. It stays open until :meth:`take` and adds no time; the fetches after it still count.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._open: list[tuple[int, float]] = []
        self._waited_s = 0.0
        self._inner_s = 0.0

    def begins(self, iterator: object) -> None:
        """The script asks ``iterator`` for its next batch."""
        if len(self._open) >= OPEN_MAX:
            del self._open[0]  # its fetch raised long ago: scripts do not nest loaders this deep
        self._open.append((id(iterator), self._clock()))

    def ends(self, iterator: object) -> None:
        """``iterator`` returned a batch."""
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
        """Seconds waited since the last call. Evaluation in between counts, as it does in ``step_s``."""
        waited = self._waited_s + self._inner_s
        self._open.clear()
        self._waited_s = self._inner_s = 0.0
        return waited
