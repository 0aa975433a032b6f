"""A loss that had been positive turns negative from one step to the next and falls on, or sinks without bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import has_slid, stride_of

BEFORE_ROWS, LEVEL_ROWS = 16, 5
LEVEL_MIN = 1.0
"""Least level against which a sinking loss counts. An actor's loss begins near zero and follows its critic down."""

PLUNGE_ROWS, DEEPER = 5, 2.0
"""Negative losses in a row, each so many times the one before."""

SUNK_ROWS, FASTER, QUADRUPLED = 32, 1.2, 4.0
"""Negative losses in a row of which the quarters are compared: each falls faster than the one before, and the level of
the last is so many times that of the second."""


@final
@dataclass(frozen=True)
class LossTurnedNegative(Detector):
    """A loss that had been positive turns negative at once and falls on, or sinks below zero without bound.

    Means:
        Cross-entropies and squared errors are never negative. Every loss so far was positive; from one step on every
        loss is negative, and they fall faster than noise or progress explain. The sign was turned, so that training
        makes the errors larger, or another quantity than before is minimised. A likelihood of continuous values turns
        negative as well, but slowly, and it slows down. A loss that sinks faster and faster, to a thousand times its
        first level below zero, has no minimum: a term that is maximised has no upper bound. That is known after five
        steps if each of them at least doubles the depth.

    Causes:
        - a loss whose sign is wrong: a reward or a score that is minimised
        - targets outside of their range, for example class numbers or -100 in a binary cross-entropy
        - a contrast without its hinge: `(d_pos - d_neg + margin).mean()` without `relu`
        - a penalty with the wrong sign, for example a weight that was scheduled below zero

    Next:
        1. Print the parts of the loss at `first_step` and at the step before.
        2. Go back to a checkpoint before `first_step`: the weights have been driven the wrong way since.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    bursts: ClassVar[bool] = True
    is_below_zero: ClassVar[bool] = True
    hasty: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    positive_rows: int = threshold(5, "logged losses before it that are all positive")
    negative_rows: int = threshold(5, "logged losses from it on that are all negative")
    mirrored_share: float = threshold(
        0.25, "of the level before: how far below zero the level is. A slow fall through zero is near it at first"
    )
    jump_scales: float = threshold(
        5.0, "standard deviations of a change from loss to loss, by which it fell in one step, and in all"
    )
    sunk_ratio: float = threshold(1000.0, "of its first level (or of 1): how far a loss without bound sinks")
    critical_rows: int = threshold(64, "the horizon after which the course of a symptom is judged")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        values = loss.values
        negative = np.flatnonzero(values < 0)
        if not len(negative) or has_slid(loss.steps, stride=stride_of(loss.steps)):
            return ()
        return self._plunged(loss) or self._turned(loss, int(negative[0])) or self._sunk(loss)

    def _plunged(self, loss: Series) -> tuple[Symptom, ...]:
        """A loss that began positive and is many times deeper below zero with each step."""
        finite = loss.values[np.isfinite(loss.values)]
        first, last = finite[: self.positive_rows], finite[-PLUNGE_ROWS:]
        row = int(np.flatnonzero(finite >= 0)[-1]) + 1 if (finite >= 0).any() else 0
        if row < self.positive_rows or not first.min() > 0 or len(finite) - row < PLUNGE_ROWS:
            return ()
        level = median(first)
        if last[-1] > -self.sunk_ratio * max(level, LEVEL_MIN) or (last[1:] > DEEPER * last[:-1]).any():
            return ()
        return (self._without_bound(loss, row, float(last[-1]), level, len(finite) - row),)

    def _turned(self, loss: Series, row: int) -> tuple[Symptom, ...]:
        values = loss.values
        before, after = values[:row][-BEFORE_ROWS:], values[row:]
        if row < self.positive_rows or len(after) < self.negative_rows or not before.min() > 0:
            return ()
        if not (after[: self.negative_rows] < 0).all():
            return ()
        level, now = median(before), median(after[-LEVEL_ROWS:])
        noise = MAD_TO_SIGMA * median(np.abs(np.diff(before)))
        fell = float(before[-1] - after[0])
        if fell < self.jump_scales * noise or level - now < self.jump_scales * noise:
            return ()
        if median(after[: self.negative_rows]) > -self.mirrored_share * level or now > -self.mirrored_share * level:
            return ()
        first_step = int(loss.steps[row])
        return (
            Symptom(
                name="loss-turned-negative",
                severity="critical" if len(after) >= self.critical_rows else "warning",
                first_step=first_step,
                last_step=int(loss.steps[-1]),
                message=f"every loss was positive up to {before[-1]:.4g}; from step {first_step} on they are negative, "
                f"and the loss is {now:.4g} at step {loss.steps[-1]}",
                signals=("loss",),
                numbers={"loss": now, "reference_level": level, "steps": float(len(after))},
            ),
        )

    def _sunk(self, loss: Series) -> tuple[Symptom, ...]:
        """A loss that began positive and sinks faster and faster."""
        values = loss.values
        row = int(np.flatnonzero(values >= 0)[-1]) + 1 if (values >= 0).any() else 0
        first, after = values[: self.positive_rows], values[row:]
        if row < self.positive_rows or not first.min() > 0 or len(after) < SUNK_ROWS:
            return ()
        one, two, three, four = (median(part) for part in np.array_split(after, 4))
        now, level = median(after[-LEVEL_ROWS:]), median(first)
        if now > -self.sunk_ratio * max(level, LEVEL_MIN) or four > QUADRUPLED * two:
            return ()
        if three - four < FASTER * (two - three) or two - three < FASTER * (one - two):
            return ()
        return (self._without_bound(loss, row, now, level, len(after)),)

    def _without_bound(self, loss: Series, row: int, now: float, level: float, rows: int) -> Symptom:
        last = loss.steps[row + rows - 1]
        return Symptom(
            name="loss-turned-negative",
            severity="critical" if rows >= self.critical_rows else "warning",
            first_step=int(loss.steps[row]),
            last_step=int(last),
            message=f"the loss began at {level:.4g} and sinks without bound: it is negative from step "
            f"{loss.steps[row]} on, and {now:.4g} at step {last}",
            signals=("loss",),
            numbers={"loss": now, "reference_level": level, "steps": float(rows), "without_bound": 1.0},
        )
