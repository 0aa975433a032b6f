"""When a loss stands out of its last values: what it judges is read again in the next steps.

A loss that rises because it judges more values than before, such as those of a longer horizon, is no fault. Nothing but
the graph of such a step shows that.
"""

from __future__ import annotations

import math
from collections import deque

BEFORE_STEPS, BEFORE_STEPS_MIN = 16, 8
READ_STEPS = 2
"""Steps that are read after a rise: two that agree are needed."""

APART_STEPS, RISES_MAX = 16, 64
"""A loss that is rough by nature is not read in every step, nor for ever."""


class LossRises:
    """Follows the losses of one stream."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=BEFORE_STEPS)
        self._left = self._since = 0
        self._found = 0

    @property
    def is_due(self) -> bool:
        """Whether the next step is to be read."""
        return self._left > 0

    def stepped(self, loss: float | None) -> None:
        """Take the loss of a step; one that is not known or not finite says nothing of a plan."""
        self._left, self._since = max(0, self._left - 1), self._since + 1
        if loss is None or not math.isfinite(loss):
            return
        if self._since > APART_STEPS and self._found < RISES_MAX and self._stands_out(loss):
            self._left, self._since, self._found = READ_STEPS, 0, self._found + 1
        self._recent.append(loss)

    def _stands_out(self, loss: float) -> bool:
        """Whether it lies above all values before it by more than they differ."""
        if len(self._recent) < BEFORE_STEPS_MIN:
            return False
        highest = max(self._recent)
        return loss > highest + (highest - min(self._recent))
