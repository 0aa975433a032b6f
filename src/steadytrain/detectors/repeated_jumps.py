"""Rows of a sparse log jump back to where the run began, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import curve_of
from steadytrain.statistics.medians import row_medians

ROWS_MIN = 20
AROUND_ROWS = 4
TRANSIENT_STEPS = 20


@final
@dataclass(frozen=True)
class RepeatedJumps(Detector):
    """Rows of a log with wide strides jump by most of the progress made, more than once.

    Means:
        Two rows or more stand far above those around them and undo half of the progress made so far. In a log of every
        tenth step or fewer such a row is seldom a single hard batch: most of them are never logged. It looks only at
        whole logs (`steadytrain analyze`).

    Causes:
        - a learning rate at the edge of stability
        - gradients that are not clipped; a loss in half precision
        - rare batches of another kind: outliers, wrong labels, empty masks

    Next:
        1. Log every step, or watch the run (`steadytrain run`), to see how long each lasts.
        2. Compare half of the learning rate, and clipping at the typical gradient norm.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    of_logs: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    stride_steps: int = threshold(10, "steps between two rows; in denser logs other detectors judge single batches")
    jump_ratio: float = threshold(1.8, "a row over the median of those around it")
    undone_share: float = threshold(0.5, "of the progress made before, and that must be half of the start")
    noise_scales: float = threshold(3.5, "in standard deviations of a row, in logarithms")
    jumps_min: int = threshold(2, "jumps; one alone that comes back is a note of other detectors")
    single_scales: float = threshold(5.5, "the same of one alone: batches of one sample reach four")
    undoing_ratio: float = threshold(3.0, "unless it stands above the start and is so many times the rows around it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        curve = curve_of(window, window.applied("loss"))
        if curve is None or len(curve) < ROWS_MIN or curve.stride < self.stride_steps:
            return ()
        logarithmic = curve.logarithmic()
        if logarithmic is None or not curve.starts or window.facts.get("loss_may_rise"):
            return ()
        padded = np.pad(curve.values, AROUND_ROWS, mode="edge")
        around = row_medians(sliding_window_view(padded, 2 * AROUND_ROWS + 1))
        gain = curve.initial - np.minimum.accumulate(around)
        factor = np.log(curve.values / around)
        jumps = (factor >= np.log(self.jump_ratio)) & (factor >= self.noise_scales * logarithmic.noise)
        jumps &= (curve.values - around >= self.undone_share * gain) & (gain > self.undone_share * curve.initial / 2)
        rows = np.flatnonzero(jumps & (curve.steps - curve.steps[0] >= TRANSIENT_STEPS))
        undoes_all = (curve.values[rows] > curve.initial) & (factor[rows] >= np.log(self.undoing_ratio))
        undoes_all &= factor[rows] >= self.single_scales * logarithmic.noise
        if len(rows) < self.jumps_min and not undoes_all.any():
            return ()
        steps = curve.steps[rows]
        worst = int(np.argmax(factor[rows]))
        return (
            Symptom(
                name="repeated-jumps",
                severity="warning",
                first_step=int(steps[0]),
                last_step=int(steps[-1]),
                message=f"the loss jumps {len(rows)} times, first at step {steps[0]}; at step {steps[worst]} it is "
                f"{curve.values[rows[worst]]:.4g}, {np.exp(factor[rows[worst]]):.2g} times the rows around it",
                signals=("loss",),
                numbers={"jumps": float(len(rows)), "loss": float(curve.values[rows[worst]])},
            ),
        )
