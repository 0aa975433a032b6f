"""The loss, the gradient norm or the learning rate of a log is zero, or nearly, and stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.corroboration import aligned
from steadytrain.statistics.log_levels import curve_of, noise_of, suffix
from steadytrain.statistics.medians import median

ROWS_MIN = 5
BEFORE_ROWS = 3
ROUNDED_MAX = 1e-4
"""A rate of a single one at this decimal or later may be a rate that was printed with so many decimals."""


@final
@dataclass(frozen=True)
class DeadSignal(Detector):
    """The loss, the gradient norm or the learning rate of a log died: it is zero, or nearly, up to the end.

    Means:
        The loss fell from a high level to exactly 0.0 in one row, or was 0.0 from the first row on. Or the gradient
        norm fell to a thousandth at once, or to a millionth, though the loss is still high. Or the learning rate is 0
        without a decay, and the loss gets no better. The rows up to the end of the log show the same, five at least. It
        looks only at whole logs (`steadytrain analyze`).

    Causes:
        - loss: a NaN that the trainer logs as 0.0, labels that are all masked, a division by the wrong count
        - gradient norm: dead units, a saturated output, a graph that is cut (`detach`, `no_grad`), clipping to nothing
        - learning rate: a schedule that is never stepped, ended before the run, or begins at zero

    Next:
        1. Print one batch, its labels and its loss at full precision.
        2. Look at the gradient norms by tensor (`steadytrain run`): a NaN or a zero has a first place.
        3. Print `optimizer.param_groups[0]["lr"]` after each step and compare it with the plan.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss", "gradient_norm", "learning_rate")
    of_logs: ClassVar[bool] = True
    same_event_as: ClassVar[str] = "zero-learning-rate"

    level_share: float = threshold(0.1, "of its first level, what a loss still was before it read 0.0")
    zero_rows: int = threshold(8, "rows of a loss that was 0.0 from the first on; ten of a rate")
    fallen_ratio: float = threshold(1e-3, "gradient norm over its typical one in the first half of the log")
    vanished_ratio: float = threshold(1e-6, "the same where it fell bit by bit, as where training converges")
    step_ratio: float = threshold(30.0, "factor between two rows by which a norm falls at once")
    high_share: float = threshold(
        0.2, "of its first level, what the loss still is: else there is nothing left to learn"
    )
    falls_scales: float = threshold(0.75, "standard deviations of a row by which a loss falls that still learns")
    decayed_share: float = threshold(0.1, "a last rate below this share of the largest was a decay")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        if window.facts.get("loss_may_rise") or len(loss) < ROWS_MIN:
            return ()
        found = (self._loss(window, loss), self._norm(window, loss), self._rate(window, loss))
        return tuple(sorted((one for one in found if one is not None), key=lambda one: one.first_step))

    def _loss(self, window: Window, loss: Series) -> Symptom | None:
        rows = len(loss)
        dead = suffix(loss.values == 0.0)
        if dead < ROWS_MIN or (dead == rows and dead < self.zero_rows):
            return None
        norms = window.series("gradient_norm").between(int(loss.steps[rows - dead]), int(loss.steps[-1])).values
        if len(norms) and not np.isfinite(norms).any():
            return None  # nonfinite-loss tells the hidden NaN
        before = loss.values[: rows - dead]
        told = "the loss is 0.0 from the first row on"
        if dead < rows:
            last = median(before[-BEFORE_ROWS:])
            if last <= self.level_share * median(before[:BEFORE_ROWS]) or not before[-1] > last / 2:
                return None
            told = f"the loss falls from {before[-1]:.4g} to 0.0 at once and stays there"
        return _symptom("loss", loss, rows - dead, f"{told}, in {dead} rows")

    def _norm(self, window: Window, loss: Series) -> Symptom | None:
        norm = window.applied("gradient_norm")
        if len(norm) < 2 * ROWS_MIN or not np.isfinite(norm.values).all():
            return None
        usual = median(norm.values[: len(norm) // 2])
        dead = suffix(norm.values <= self.fallen_ratio * usual)
        if usual <= 0 or dead < max(BEFORE_ROWS, len(norm) // 16) or dead == len(norm):
            return None
        first = len(norm) - dead
        at_once = norm.values[first - 1] >= self.step_ratio * norm.values[first]
        if not at_once and norm.values[-BEFORE_ROWS:].max() > self.vanished_ratio * usual:
            return None
        during = aligned(loss, norm.steps)[first:]
        during = during[np.isfinite(during)]
        third = len(during) // 3
        if not third or median(during) <= self.high_share * median(loss.values[:BEFORE_ROWS]):
            return None
        if median(during[-third:]) < (1.0 - self.high_share / 2) * median(during[:third]):
            return None
        told = (
            f"the gradient norm falls from {usual:.3g} to {median(norm.values[first:]):.2g} and stays, while the loss "
        )
        return _symptom("gradient_norm", norm, first, f"{told}is still {median(during):.4g}")

    def _rate(self, window: Window, loss: Series) -> Symptom | None:
        rate = window.applied("learning_rate")
        dead = suffix(rate.values == 0.0)
        first = len(rate) - dead
        if dead < max(ROWS_MIN, len(rate) // 6) or (first == 0 and dead <= self.zero_rows):
            return None
        curve = curve_of(window, loss)
        if curve is None or (first == 0 and not curve.starts):
            return None
        if first:
            before, largest = float(rate.values[first - 1]), float(rate.values.max())
            one_digit = before <= ROUNDED_MAX and np.isclose(np.log10(before), np.round(np.log10(before)))
            if before < self.decayed_share * largest or one_digit:
                return None
        during = loss.values[loss.steps >= rate.steps[first]]
        third = len(during) // 3
        if not third or median(during[:third]) - median(during[-third:]) > self.falls_scales * noise_of(during):
            return None
        since = (
            f"since step {rate.steps[first]}, after {rate.values[first - 1]:.3g}" if first else "from the first row on"
        )
        return _symptom("learning_rate", rate, first, f"the learning rate is 0 {since}, and the loss gets no better")


def _symptom(signal: str, series: Series, first: int, told: str) -> Symptom:
    return Symptom(
        name="dead-signal",
        severity="warning",
        first_step=int(series.steps[first]),
        last_step=int(series.steps[-1]),
        message=told,
        signals=(signal,),
        numbers={"rows": float(len(series) - first)},
    )
