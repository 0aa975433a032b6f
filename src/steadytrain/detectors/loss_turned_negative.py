"""A loss that had been positive turns negative from one step to the next, and falls on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import has_slid, stride_of

BEFORE_ROWS, LEVEL_ROWS = 16, 5


@final
@dataclass(frozen=True)
class LossTurnedNegative(Detector):
    """A loss that had been positive turns negative at once, and falls on.

    Means:
        Cross-entropies and squared errors are never negative. Every loss so far was positive; from one step on every
        loss is negative, and they fall faster than noise or progress explain. The sign was turned, so that training
        makes the errors larger, or another quantity than before is minimised. A likelihood of continuous values turns
        negative as well, but slowly.

    Causes:
        - a loss whose sign is wrong: a reward or a score that is minimised
        - targets outside of their range, for example class numbers or -100 in a binary cross-entropy
        - a penalty with the wrong sign, for example a weight that was scheduled below zero

    Next:
        1. Print the parts of the loss at `first_step` and at the step before.
        2. Go back to a checkpoint before `first_step`: the weights have been driven the wrong way since.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    bursts: ClassVar[bool] = True
    hasty: ClassVar[bool] = True

    positive_rows: int = threshold(5, "logged losses before it that are all positive")
    negative_rows: int = threshold(5, "logged losses from it on that are all negative")
    mirrored_share: float = threshold(
        0.25, "of the level before: how far below zero the level is. A slow fall through zero is near it at first"
    )
    jump_scales: float = threshold(
        5.0, "standard deviations of a change from loss to loss, by which it fell in one step, and in all"
    )
    critical_rows: int = threshold(64, "the horizon after which the course of a symptom is judged")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        values = loss.values
        negative = np.flatnonzero(values < 0)
        if not len(negative) or has_slid(loss.steps, stride=stride_of(loss.steps)):
            return ()
        row = int(negative[0])
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
