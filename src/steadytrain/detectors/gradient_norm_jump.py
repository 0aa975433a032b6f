"""The gradient norm of a log jumps by orders of magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import POINTS_MAX, Curve, curve_of, suffix
from steadytrain.statistics.medians import median

START_ROWS = 2
CREEP_ROWS_MIN = 12


@final
@dataclass(frozen=True)
class GradientNormJump(Detector):
    """The gradient norm of a log rises a hundredfold, or tenfold and stays there.

    Means:
        A row has a hundred times the typical gradient norm of the rows before, and more than any of them; or all rows
        to the end of the log have ten times as much; or it grew bit by bit to a hundred times that of the first third.
        It looks only at whole logs (`steadytrain analyze`) and needs five rows.

    Causes:
        - a learning rate that is too high: the weights moved to where the loss is steep
        - damaged weights or state: a resume, an overflow, weights overwritten
        - batches of another scale: no normalization, other units, other sources
        - a loss that is summed where it was averaged before

    Next:
        1. Look at the loss in the same rows: if it rose too, go back to a checkpoint from before.
        2. Look at the gradient norms by tensor around that step (`steadytrain run`).
        3. If only single rows jump and the loss does not, clip the gradients.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norm",)
    of_logs: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    single_ratio: float = threshold(100.0, "norm of one row over the median before it; hard batches reach about ten")
    lasting_ratio: float = threshold(
        10.0, "the same of every row to the end; slow growth over a run is about threefold"
    )
    seen_ratio: float = threshold(3.0, "and over the largest norm before: what a run has survived once is no jump")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        curve = curve_of(window, window.applied("gradient_norm"))
        if curve is None or not (curve.values > 0).any():
            return ()
        series = window.applied("gradient_norm")
        values, steps = series.values, series.steps
        typical, largest = self._before(values)
        ratio = values / np.maximum(typical, np.finfo(np.float64).tiny)
        new = values >= self.seen_ratio * largest
        tail = curve.tail_rows
        for row in np.flatnonzero(new & (ratio >= self.lasting_ratio)).tolist():
            stays = len(values) - row >= tail and (values[row:] >= self.lasting_ratio * typical[row]).mean() >= 0.8
            if ratio[row] < self.single_ratio and not stays:
                continue
            last = len(steps) - 1 if stays else row
            return (
                Symptom(
                    name="gradient-norm-jump",
                    severity="warning"
                    if stays or len(values) <= POINTS_MAX
                    else "note",  # of many, one row is an outlier
                    first_step=int(steps[row]),
                    last_step=int(steps[last]),
                    message=f"the gradient norm is {values[row]:.3g} at step {steps[row]}, {ratio[row]:.3g} times that "
                    f"of the rows before{', and stays up to the end' if stays else ''}",
                    signals=("gradient_norm",),
                    numbers={"gradient_norm": float(values[row]), "typical": float(typical[row])},
                ),
            )
        return self._creep(curve, int(steps[-1]))

    def _creep(self, curve: Curve, last_step: int) -> tuple[Symptom, ...]:
        """A norm that grew bit by bit, to a hundred times that of the first third of the log."""
        usual, now = median(curve.values[: max(1, len(curve) // 3)]), float(curve.level[-curve.tail_rows :].min())
        if len(curve) < CREEP_ROWS_MIN or usual <= 0 or now < self.single_ratio * usual:
            return ()
        grown = suffix(curve.level >= self.lasting_ratio * usual)
        first = int(curve.steps[len(curve) - grown])
        return (
            Symptom(
                name="gradient-norm-jump",
                severity="warning",
                first_step=first,
                last_step=last_step,
                message=f"the gradient norm grows bit by bit from {usual:.3g} to {now:.3g}, tenfold since step {first}",
                signals=("gradient_norm",),
                numbers={"gradient_norm": now, "typical": usual},
            ),
        )

    def _before(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The median and the largest of all rows before each; Inf for the first rows."""
        typical, largest = np.full(len(values), np.inf), np.full(len(values), np.inf)
        for row in np.flatnonzero(values >= self.lasting_ratio * median(values[:START_ROWS])).tolist():
            if row >= START_ROWS:
                typical[row], largest[row] = median(values[:row]), values[:row].max()
        return typical, largest
