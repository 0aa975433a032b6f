"""A metric of a log loses what it had gained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.metric_names import SCORE, direction, is_loss, words
from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import ROWS_MIN, Curve, curve_of, legs, rate_explains, stage_changed
from steadytrain.statistics.log_losses import lost_at_end
from steadytrain.statistics.medians import median

NONFINITE_ROWS_MIN = 2
SWING_ROWS_MIN = 10
SHARES_OF_ONE = 1.05
EVALUATED = SCORE | {"auc", "dice", "iou", "map"}
"""Scores over a whole data set: unlike returns they hardly vary from row to row."""


@final
@dataclass(frozen=True)
class MetricCollapse(Detector):
    """A logged metric (accuracy, return, perplexity, an evaluation loss) loses half of what it had gained.

    Means:
        At the end of the log the metric has lost half of its gain or more, in several rows and beyond its noise; or it
        swings between good and bad without net progress; or it is NaN again and again after it was finite. Whether
        higher or lower is better follows from its name; a metric of an unknown name is not judged. It looks only at
        whole logs (`steadytrain analyze`).

    Causes:
        - an update that destroyed the model: a rate too high, a resume with damaged state
        - a policy that collapsed: steps too large, no entropy left, values of another scale
        - labels or inputs of another kind from some step on; statistics of batch norm gone wrong
        - forgetting: the data of this metric is no longer trained on

    Next:
        1. Evaluate the checkpoint of the best value again. If it is good still, the weights broke, else the data.
        2. Look at the loss and the rate between the best value and `first_step`.
        3. Go back to the best checkpoint with a third of the rate.
    """

    needs: ClassVar[tuple[str, ...]] = ("metrics",)
    of_logs: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    lost_share: float = threshold(0.5, "share of the gain that is lost at the end")
    floor_share: float = threshold(0.15, "and of the best value")
    points_share: float = threshold(0.1, "and of the whole scale, for metrics between 0 and 1")
    noise_scales: float = threshold(4.0, "and in standard deviations of a row")
    swing_share: float = threshold(0.5, "share of the whole range that each swing gives back")
    smooth_max: float = threshold(0.6, "or von Neumann's ratio of the rows is below this: swings, and no noise")
    wild_share: float = threshold(
        0.15, "typical change from row to row of a score between 0 and 1 that gets no better: it is wild"
    )
    rises_min: int = threshold(3, "swings of a metric that makes no net progress")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [symptom for name, series in window.metrics.items() for symptom in self._of(window, name, series)]
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _of(self, window: Window, name: str, series: Series) -> list[Symptom]:
        better = direction(name)
        if not better or len(series) < ROWS_MIN:
            return []
        wrong = np.flatnonzero(~np.isfinite(series.values))
        if len(wrong) >= NONFINITE_ROWS_MIN and wrong[0] > 0:
            steps = series.steps[wrong]
            told = f"{name} is not finite in {len(wrong)} rows since step {steps[0]}"
            return [self._symptom(name, int(steps[0]), int(steps[-1]), told, {"rows": float(len(wrong))})]
        curve = curve_of(window, series, falls=better < 0)
        if curve is None:
            return []
        return (
            self._lost(window, name, curve, better)
            or self._swings(name, curve, better)
            or self._wild(name, curve, better)
        )

    def _lost(self, window: Window, name: str, curve: Curve, better: int) -> list[Symptom]:
        floor = self.floor_share * float(abs(curve.best[-1]))
        share_of_one = float(np.abs(curve.values).max()) <= SHARES_OF_ONE and better > 0
        floor = max(floor, self.points_share) if share_of_one else floor
        found = lost_at_end(curve, floor=floor, share=self.lost_share, scales=self.noise_scales)
        if found is None or found.gain <= 0.0:
            return []
        best, first = int(curve.steps[found.best_row]), int(curve.steps[found.first])
        if rate_explains(window, best, first) or stage_changed(window, best, first):
            return []
        if is_loss(name) and _falls(window.applied("loss"), best):
            return []  # overfitting is another symptom
        told = (
            f"{name} is {-better * found.level:.4g} since step {first} after {-better * found.best:.4g} at step {best}"
        )
        told += f": {min(found.share, 1.0):.0%} of its gain is lost"
        numbers = {"value": -better * found.level, "best": -better * found.best, "initial": -better * found.initial}
        return [self._symptom(name, first, int(curve.steps[-1]), told, numbers)]

    def _swings(self, name: str, curve: Curve, better: int) -> list[Symptom]:
        reach = float(curve.level.max() - curve.level.min())
        scale = float(np.abs(curve.level).max())
        if len(curve) < SWING_ROWS_MIN or reach < self.floor_share * scale:
            return []
        if reach < self.noise_scales * curve.noise and curve.roughness > self.smooth_max:
            return []
        rises = legs(curve.level, self.swing_share * reach)
        third = len(curve) // 3
        gained = median(curve.level[:third]) - median(curve.level[-third:])
        if len(rises) < self.rises_min or gained > self.swing_share * reach:
            return []
        ends = sorted((-better * float(curve.level.min()), -better * float(curve.level.max())))
        told = f"{name} swings between {ends[0]:.4g} and {ends[1]:.4g}, {len(rises)} times, without net progress"
        return [self._symptom(name, int(curve.steps[0]), int(curve.steps[-1]), told, {"swings": float(len(rises))})]

    def _wild(self, name: str, curve: Curve, better: int) -> list[Symptom]:
        """A score that jumps up and down from each row to the next, without net progress."""
        values, third = curve.values, len(curve) // 3
        in_unit = better > 0 and bool(((values <= 0.0) & (values >= -SHARES_OF_ONE)).all())
        if len(curve) < SWING_ROWS_MIN or not in_unit or not EVALUATED & set(words(name)):
            return []
        gained = median(values[:third]) - median(values[-third:])
        change = median(np.abs(np.diff(values)))
        if change < self.wild_share or gained > change / 2:
            return []
        told = f"{name} varies by {change:.2g} from row to row, between {-values.max():.4g} and {-values.min():.4g}"
        numbers = {"change": change}
        return [self._symptom(name, int(curve.steps[0]), int(curve.steps[-1]), f"{told}, and gets no better", numbers)]

    def _symptom(self, name: str, first: int, last: int, told: str, numbers: dict[str, float]) -> Symptom:
        return Symptom(
            name="metric-collapse",
            severity="warning",
            first_step=first,
            last_step=last,
            message=told,
            signals=(name,),
            numbers=numbers,
        )


def _falls(train: Series, since: int) -> bool:
    """Whether the training loss at the end is below that around step ``since``."""
    rows = max(1, len(train) // 10)
    at = int(np.searchsorted(train.steps, since, side="right"))
    around = train.values[max(0, at - rows) : at + rows]
    return bool(len(around) and median(train.values[-rows:]) < median(around))
