"""An evaluation gets clearly worse while training gets better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.metric_names import is_loss
from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import curve_of
from steadytrain.statistics.log_losses import lost_at_end
from steadytrain.statistics.medians import median


@final
@dataclass(frozen=True)
class Overfitting(Detector):
    """The evaluation loss of a log rises for good while the training loss goes on falling.

    Means:
        The evaluation loss lost half of what it had gained, or doubled, and the training loss fell meanwhile: the model
        learns its data by heart. A smaller rise is a note of `validation-gap`. It looks only at whole logs
        (`steadytrain analyze`) and needs five evaluations.

    Causes:
        - too many passes over too little data
        - a model that is large for its data, no weight decay, no dropout, no augmentation
        - evaluation data of another kind than the training data

    Next:
        1. Take the checkpoint of the lowest evaluation loss, and stop there next time.
        2. Look at the metric that counts: accuracy may rise on while the loss rises.
        3. Compare more data or augmentation, then weight decay and dropout.
    """

    needs: ClassVar[tuple[str, ...]] = ("metrics",)
    of_logs: ClassVar[bool] = True

    lost_share: float = threshold(0.5, "share of the gain of the evaluation that is lost at the end")
    floor_share: float = threshold(0.15, "and of its lowest level")
    noise_scales: float = threshold(4.0, "and in standard deviations of an evaluation")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        train = window.applied("loss")
        found = [one for name, series in window.metrics.items() for one in self._of(window, train, name, series)]
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _of(self, window: Window, train: Series, name: str, series: Series) -> list[Symptom]:
        if not is_loss(name) or not len(train):
            return []
        curve = curve_of(window, series)
        if curve is None:
            return []
        floor = self.floor_share * float(abs(curve.best[-1]))
        found = lost_at_end(curve, floor=floor, share=self.lost_share, scales=self.noise_scales)
        if found is None:
            return []
        best, first = int(curve.steps[found.best_row]), int(curve.steps[found.first])
        rows = max(1, len(train) // 10)
        at = int(np.searchsorted(train.steps, best, side="right"))
        then, now = (
            median(train.values[max(0, at - rows) : at + rows]),
            median(train.values[-rows:]),
        )
        if not now < then:
            return []
        return [
            Symptom(
                name="overfitting",
                severity="warning",
                first_step=best,
                last_step=int(curve.steps[-1]),
                message=f"{name} rises from {found.best:.4g} at step {best} to {found.level:.4g} since step {first}, "
                f"while the training loss falls from {then:.4g} to {now:.4g}: overfitting",
                signals=("loss", name),
                numbers={"evaluation_loss": found.level, "lowest": found.best, "training_loss": now},
            )
        ]
