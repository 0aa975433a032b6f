"""The loss has stopped falling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.rolling_baseline import known_first_step, stride_of

POINTS = 64
"""The stretch is summed up in so many medians before lines are laid through all pairs of them."""

EARLIER, LATER = np.triu_indices(POINTS, k=1)

ROWS_MIN = 64
BLOCK_STEPS = 64
MEAN_SCALES = 3.0
"""A block's mean this many standard errors away is no noise."""

NORMAL_95 = 1.96


@final
@dataclass(frozen=True)
class Plateau(Detector):
    """The loss stays constant while the learning rate is still high.

    Means:
        Over 500 steps or more the slope of the loss is not significantly negative (Theil-Sen, 95 %), and the largest
        fall that fits is below a hundredth of the loss. Most runs end like this: a note. It is a warning if the loss is
        only a little below that of a guess that ignores the input: then the model learned little.

    Causes:
        - healthy: the model has learned what it can from this data
        - a learning rate too low, or too high for the last improvement (a decay helps at once)
        - a language model that learned the frequencies of words and nothing of their order: labels or attention
        - dead units, collapsed attention, or parameters that do not move

    Next:
        1. Compare with the loss of a guess, and with a run of the same data that is known to be good.
        2. Halve the learning rate for 200 steps. If the loss falls at once, step noise kept it high.
        3. Overfit one batch. If that fails, the model or the labels are wrong, not the schedule.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    waits_for: ClassVar[str] = "span_steps"
    aim: ClassVar[Aim] = "progress"

    span_steps: int = threshold(500, "shortest window, in optimizer steps")
    span_share: float = threshold(0.05, "minimum window as a share of the planned steps, if known")
    fall_share: float = threshold(0.01, "a fall over the window by this share of the loss is progress")
    noise_share: float = threshold(0.1, "a loss that varies by more than this share of itself is not judged")
    rate_share: float = threshold(
        0.1, "below this share of its highest value the learning rate has decayed, and a constant loss is expected"
    )
    guess_share: float = threshold(0.9, "above this share of the loss of a guess, the model learned little")
    vocabulary_share: float = threshold(
        0.6,
        "the same if only the vocabulary is known: word frequencies alone bring English text to "
        "about 0.65 to 0.7 of its logarithm",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        rate = window.applied("learning_rate")
        if len(rate) and rate.values[-1] <= self.rate_share * rate.values.max():
            return ()
        span = max(self.span_steps, self.span_share * window.facts.get("planned_steps", 0.0))
        begin = int(np.searchsorted(loss.steps, loss.steps[-1] - span, side="right")) if len(loss) else 0
        if len(loss) - begin < ROWS_MIN or loss.steps[-1] - loss.steps[begin] < 0.9 * span:
            return ()
        level = median(loss.values[begin:])
        if level <= 0.0 or not self._flat(loss.values[begin:], level):
            return ()
        stride = stride_of(window.steps)
        begin = self._since(loss, begin, level, stride)
        first_step = known_first_step(loss.steps, begin, first_seen=int(window.steps[0]), stride=stride)
        guess = self._guess(window)
        little = guess is not None and level > guess
        return (
            Symptom(
                name="plateau",
                severity="warning" if little else "note",
                first_step=first_step,
                last_step=int(loss.steps[-1]),
                message=self._said(loss.values[begin:], level, first_step)
                + (f", above the {guess:.4g} that little learning brings" if little else ""),
                signals=("loss",),
                numbers={"loss": level, **({"guess": guess} if guess is not None else {})},
            ),
        )

    def _said(self, values: FloatArray, level: float, first_step: int) -> str:
        """A loss that does not fall may still have risen meanwhile, and then it stands at no level."""
        rows = len(values) // POINTS
        points = row_medians(values[len(values) - rows * POINTS :].reshape(POINTS, rows)) if rows else values
        if np.abs(points - level).max() <= self.noise_share * level:
            return f"the loss stands at {level:.4g} since about step {first_step}"
        return f"the loss has not fallen since about step {first_step}, and its median is {level:.4g}"

    def _flat(self, values: FloatArray, level: float) -> bool:
        """Whether no fall over all of ``values`` is certain, and none by more than a share of ``level`` is likely."""
        if median(np.abs(np.diff(values))) > self.noise_share * level:
            return False
        rows = len(values) // POINTS
        points = row_medians(values[len(values) - rows * POINTS :].reshape(POINTS, rows))
        slopes = np.sort((points[LATER] - points[EARLIER]) / (LATER - EARLIER))
        # Kendall's tau: how far the bounds are from the middle of the sorted slopes.
        reach = NORMAL_95 * math.sqrt(POINTS * (POINTS - 1) * (2 * POINTS + 5) / 18.0)
        low = slopes[int((len(slopes) - reach) / 2)]
        high = slopes[min(int((len(slopes) + reach) / 2), len(slopes) - 1)]
        return bool(high >= 0.0 and low * POINTS > -self.fall_share * level)

    def _since(self, loss: Series, begin: int, level: float, stride: int) -> int:
        """The row from which on the loss has been near ``level``, which it still was at row ``begin``.

        By blocks that begin at round step numbers, so that a window that slides along finds the same one.
        """
        block = loss.steps // (BLOCK_STEPS * stride)
        starts = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
        values = np.clip(loss.values, (1.0 - self.noise_share) * level, (1.0 + self.noise_share) * level)
        counts = np.diff(starts, append=len(values))
        noise = median(np.abs(np.diff(values[begin:])))
        near = np.maximum(self.fall_share * level, MEAN_SCALES * noise / np.sqrt(counts))
        away = np.abs(np.add.reduceat(values, starts) / counts - level) > near
        before = np.flatnonzero(away & (starts < begin))
        return int(starts[min(before[-1] + 1, len(starts) - 1)]) if len(before) else 0

    def _guess(self, window: Window) -> float | None:
        if window.facts.get("baseline_loss", 0.0) > 0.0:
            return self.guess_share * window.facts["baseline_loss"]
        if window.facts.get("vocabulary", 0.0) > 1.0:
            return self.vocabulary_share * math.log(window.facts["vocabulary"])
        return None
