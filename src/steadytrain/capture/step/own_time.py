"""Measures the seconds of a step that steadytrain itself spent on the training thread.

They are subtracted from ``step_s``; otherwise denser measurements near a symptom would look like slower training. Not
here: the time of the gate. On a GPU the gate waits for the training's own work, and the two cannot be separated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from steadytrain.capture.hooks.unseen import Unseen


class OwnTime:
    """Use ``with own_time:`` around steadytrain's own work. Nested blocks count once.

    The script's modes and profilers do not see the operations inside (``unseen``).
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._depth = 0
        self._began = 0.0
        self._spent_s = 0.0
        self.unseen = Unseen()

    def __enter__(self) -> None:
        if not self._depth:
            self._began = self._clock()
        self._depth += 1
        self.unseen.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._depth -= 1
        self.unseen.__exit__()
        if not self._depth:
            self._spent_s += self._clock() - self._began

    def restart(self) -> None:
        """A step begins now."""
        self._spent_s, self._began = 0.0, self._clock()

    def so_far(self) -> float:
        """Own seconds since the step began."""
        return self._spent_s + (self._clock() - self._began if self._depth else 0.0)
