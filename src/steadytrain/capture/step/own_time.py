"""Seconds of a step that were ours: what steadytrain did on the training thread since the step before ended.

They are taken out of `step_s`, or measuring everything near a symptom would look like a slower training. Not here: the
gate's own look, where on a GPU the training's work is waited for and nobody can tell the two apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class OwnTime:
    """``with own_time:`` around what is ours; one inside the other counts once."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._depth = 0
        self._began = 0.0
        self._spent_s = 0.0

    def __enter__(self) -> None:
        if not self._depth:
            self._began = self._clock()
        self._depth += 1

    def __exit__(self, *exception: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._spent_s += self._clock() - self._began

    def restart(self) -> None:
        """A step begins, here and now."""
        self._spent_s, self._began = 0.0, self._clock()

    def so_far(self) -> float:
        """Seconds since the step began."""
        return self._spent_s + (self._clock() - self._began if self._depth else 0.0)
