"""The loss of a log swings widely and makes no net progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import Curve, curve_of, legs, rate_explains, stage_changed
from steadytrain.statistics.medians import median

ROWS_MIN = 10
ROWS_WILD_MIN = 16
ROWS_SHORT_MAX = 30
WILD_TAIL = 3


@final
@dataclass(frozen=True)
class WideSwings(Detector):
    """The loss swings from the start, slowly or wildly, and makes no net progress.

    Means:
        The level of the log rises and falls again and again, and each rise gives most of the progress back. Or single
        rows differ by a large factor from the first on, most of them above the first, and the last third is no better
        than the first. It looks only at whole logs (`steadytrain analyze`) and needs no calm stretch before.

    Causes:
        - a learning rate far too high, held in check by clipping or normalization
        - momentum too high for this rate (slow swings)
        - data whose order has a long cycle: sorted by length, source after source
        - a controller that sets the rate or the weight of a loss by the loss

    Next:
        1. Compare a third and a tenth of the learning rate over the same number of steps.
        2. For slow swings compare momentum 0.9 (beta1 0.9).
        3. Shuffle the data once more, and see whether the period stays.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    of_logs: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    swing_share: float = threshold(0.4, "of the whole range of the level: what a rise must give back to count")
    rises_min: int = threshold(2, "such rises; one is a loss of level, and a healthy run has none")
    range_ratio: float = threshold(1.3, "highest level over lowest: less is no swing that matters")
    noise_scales: float = threshold(4.0, "a rise also exceeds this many standard deviations of a row, in logarithms")
    smooth_max: float = threshold(
        0.5, "or von Neumann's ratio of the rows is below this: 1 is noise, 0.3 a period of eight rows"
    )
    wild_ratio: float = threshold(1.5, "typical factor between two rows of a wild run (robust standard deviation)")
    above_share: float = threshold(0.6, "share of the rows of a wild run that lie above its first")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        curve = curve_of(window, window.applied("loss"))
        if curve is None or len(curve) < ROWS_MIN or window.facts.get("loss_may_rise"):
            return ()
        logarithmic = curve.logarithmic()
        if logarithmic is None:
            return ()
        told = self._slow(window, logarithmic) or self._wild(logarithmic)
        if not told:
            return ()
        return (
            Symptom(
                name="wide-swings",
                severity="warning",
                first_step=int(curve.steps[0]),
                last_step=int(curve.steps[-1]),
                message=told,
                signals=("loss",),
                numbers={"lowest": float(curve.level.min()), "highest": float(curve.level.max())},
            ),
        )

    def _slow(self, window: Window, curve: Curve) -> str:
        short = len(curve) < ROWS_SHORT_MAX and curve.roughness <= self.smooth_max  # a median would hide its swings
        level = curve.values if short else curve.level
        reach = float(level.max() - level.min())
        turn = self.swing_share * reach
        if reach < np.log(self.range_ratio) or (
            turn < self.noise_scales * curve.noise and curve.roughness > self.smooth_max
        ):
            return ""
        rises = legs(level, turn)
        third = len(level) // 3
        progress = median(level[:third]) - median(level[-third:])
        if len(rises) < self.rises_min or progress > self.swing_share * reach:
            return ""
        spans = [(int(curve.steps[max(0, low - 1)]), int(curve.steps[high])) for low, high in rises]
        if any(rate_explains(window, *span) or stage_changed(window, *span) for span in spans):
            return ""
        low, high = np.exp(level.min()), np.exp(level.max())
        return f"the loss swings between {low:.4g} and {high:.4g}, up {len(rises)} times, without net progress"

    def _wild(self, curve: Curve) -> str:
        values, third = curve.values, len(curve) // WILD_TAIL
        if not curve.starts or len(values) < ROWS_WILD_MIN or curve.noise < np.log(self.wild_ratio):
            return ""
        better = median(values[-third:]) < median(values[:third]) - curve.noise / 2
        if better or (values[1:] > values[0]).mean() < self.above_share:
            return ""
        return (
            f"the loss varies by a factor of {np.exp(curve.noise):.2g} from row to row since the start, mostly above "
            f"its first value {np.exp(values[0]):.4g}, and gets no better"
        )
