"""Data that come for a stretch and go: the loss changes at once, and at once again, and is not what it was.

Between the two changes the run learned data that are gone, and forgot what it knew. The loss of the state from before
the first change shows whether the data are what they were: then this state is the better one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.statistics.medians import median

USUAL_STEPS = 64
"""The losses that a change is compared with."""

FIRST_STEPS = 3
"""So many losses in a row stand apart from all of those, twice as far from their median as any."""

LAST_STEPS, RETURN_STEPS, APART_RANGES = 8, 2, 2.0
"""The second number of losses in a row stand apart from the first number before them in the stretch, by so many times
the whole range of those."""

STRETCH_STEPS_MAX = 128
"""What lasts longer is no stretch: it is what the run learns from here on."""


EXPLOSION_RATIO = 4.0
"""A loss so many times as far out as at the first step of the stretch is not that of data: the weights explode."""

ENDS_MAX = 3
"""So often the end of a stretch is looked for on trial."""


@dataclass(frozen=True)
class Stretch:
    """Other data from step ``first`` to before step ``end``. ``before`` and ``now`` are the levels of the loss before
    it and since it ended, ``high`` is the highest one before it."""

    first: int
    end: int
    before: float
    high: float
    now: float

    @property
    def why(self) -> str:
        return (
            f"the loss changed at once at step {self.first} and again at step {self.end}; it was {self.before:.4g} "
            f"before, and is {self.now:.4g}"
        )


class Stretches:
    """Follows the loss of the applied steps of one stream."""

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=USUAL_STEPS)
        self._since: list[float] = []
        self._level_from = 0
        self._ends = 0
        self.first: int | None = None
        """The first step of a stretch that is open."""

    def began_at(self, step: int) -> bool:
        """Whether the loss of ``step`` may be the first of a stretch, so that the state before it is wanted later."""
        return self.first == step

    def close(self) -> None:
        """There is no stretch any more."""
        self.first, self._since, self._level_from, self._ends = None, [], 0, 0

    def forget(self) -> None:
        """Nothing is usual any more."""
        self._usual.clear()
        self.close()

    def look(self, step: int, loss: float) -> Stretch | None:
        """The loss of ``step``, which was applied. Returns the stretch that seems to be over, if the loss is not what
        it was. Until :meth:`close` it is open, and another change may be its end."""
        if self.first is None:
            if not self._is_apart(loss):
                self._usual.append(loss)
                return None
            self.first = step
        self._since.append(loss)
        single = len(self._since) <= FIRST_STEPS and not self._is_apart(loss, like=self._since[0])
        if single or len(self._since) > STRETCH_STEPS_MAX or self._ends == ENDS_MAX:
            self._usual.extend(self._since)
            self.close()
            return None
        return self._ended(step)

    def _is_apart(self, loss: float, like: float | None = None) -> bool:
        """Whether a loss stands apart from the usual ones, on the side of ``like``."""
        if len(self._usual) < USUAL_STEPS:
            return False
        usual = np.asarray(self._usual)
        middle = median(usual)
        over = loss > 2 * usual.max() - middle and (like is None or like > middle)
        return bool(over or (loss < 2 * usual.min() - middle and (like is None or like < middle)))

    def _ended(self, step: int) -> Stretch | None:
        since = np.asarray(self._since)
        if not stands_apart(since[self._level_from :]):
            return None
        now, high = median(since[-RETURN_STEPS:]), max(self._usual)
        before = median(np.asarray(self._usual))
        if now <= high:
            self.close()
            return None
        if now - before > EXPLOSION_RATIO * float(np.abs(since[:FIRST_STEPS] - before).max()):
            return None
        self._ends += 1
        self._level_from = len(since) - RETURN_STEPS
        return Stretch(self.first or step, step - RETURN_STEPS + 1, before, high, now)


def stands_apart(losses: NDArray[np.float64]) -> bool:
    """Whether the last ``RETURN_STEPS`` losses stand apart from those before. Shape ``(steps,)``, oldest first."""
    if len(losses) < LAST_STEPS + RETURN_STEPS:
        return False
    last, now = losses[-LAST_STEPS - RETURN_STEPS : -RETURN_STEPS], losses[-RETURN_STEPS:]
    reach = APART_RANGES * (last.max() - last.min())
    return bool((now > last.max() + reach).all() or (now < last.min() - reach).all())
