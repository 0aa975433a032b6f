"""Batches that are a world apart from the others and come again and again, with a gradient that is not extreme.

Their updates are made. If the loss of each is lower than that of the one before, the run learns from them: they are
data, and the rises that they leave behind are what learning them costs. A loss that does not fall says nothing: rare
data may be learned late.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Symptom
from steadytrain.statistics.medians import median

USUAL_STEPS, USUAL_STEPS_MIN, APART_RATIO = 64, 16, 10.0
"""A loss is apart if it is so many times as far above the median of so many last ones as any of them."""

LIKE_SHARE = 0.5
"""A loss right after one of them is another one if it is at least this share of it. Otherwise it is what that left."""

LEARNED_MIN, LEARNED_SHARE = 3, 0.5
"""So many times each loss is lower than the one before, and the last is at most this share of the first."""

LEVEL_STEPS = 8
"""The level of the usual loss is the median of so many last ones."""

GONE_SHARE = 0.95
"""Rises of which this share of the height of such a batch is gone are waited for."""

KEPT = 1024


@dataclass
class Batch:
    """One of them, or several in a row. ``loss`` is that of its first step, ``made`` whether its last update was made,
    which the step after shows."""

    loss: float
    last: int
    made: bool = False


class Repeats:
    """Follows the losses of one stream."""

    def __init__(self) -> None:
        self.are_learned = False
        """Whether the run learns from them."""

        self._batches: deque[Batch] = deque(maxlen=KEPT)
        self._steps: deque[int] = deque(maxlen=KEPT)

    def look(self, stream: Stream, step: int, loss: float) -> None:
        """The step at the gate has a finite ``loss``. Call once a step."""
        losses = stream.history.window().applied("loss")
        usual = losses.values[~np.isin(losses.steps, self._steps)][-USUAL_STEPS:]
        if len(usual) < USUAL_STEPS_MIN:
            return
        last = self._batches[-1] if self._batches else None
        follows = last is not None and last.last == step - 1
        if not is_apart(usual, loss) or (last is not None and follows and loss < LIKE_SHARE * last.loss):
            if last is not None and follows:
                last.made = last.last in losses.steps[-1:]
            return
        self._steps.append(step)
        if last is not None and follows:
            last.last = step
            return
        self._batches.append(Batch(loss, step))
        self._judge()

    def _judge(self) -> None:
        losses = np.array([one.loss for one in self._batches])
        first, newest = losses[0], losses[-1]
        if self.are_learned:
            self.are_learned = bool(newest < first)
            return
        made = all(one.made for one in list(self._batches)[:-1])
        falls = bool((np.diff(losses) < 0).all()) and bool(newest <= LEARNED_SHARE * first)
        self.are_learned = len(losses) >= LEARNED_MIN and made and falls

    def explain(self, symptom: Symptom, stream: Stream) -> bool:
        """Whether a rise of the loss or of the gradients is what it costs to learn from such batches."""
        if not self.are_learned:
            return False
        losses = stream.history.window().applied("loss")
        usual = losses.values[~np.isin(losses.steps, self._steps)]
        before = losses.values[losses.steps < symptom.first_step][-USUAL_STEPS:]
        if not len(before) or not len(usual):
            return False
        height = min(one.loss for one in self._batches) - median(before)
        return median(usual[-LEVEL_STEPS:]) - median(before) <= (1 - GONE_SHARE) * height


def is_apart(usual: NDArray[np.float64], loss: float) -> bool:
    """Whether a loss is far above all ``usual`` ones, which have shape ``(steps,)``."""
    middle = float(np.median(usual))
    reach = float(np.abs(usual - middle).max())
    return reach > 0 and loss - middle > APART_RATIO * reach
