"""What the model could do on an earlier task is being lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.metric_names import is_loss, is_score, qualifier
from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA

LAST = 2
"""Evaluations, the newest ones, that must all be worse: one may be bad luck."""

LOSS_ROWS = 64


@final
@dataclass(frozen=True)
class Forgetting(Detector):
    """The score of one task or domain gets worse while the training loss improves.

    Means:
        The evaluation of a named task (`eval_news_accuracy`, `val/code/loss`) became worse by a tenth while the
        training loss still falls: the model loses what it knew to what it learns now. An evaluation without a name is
        the current task; when that gets worse it is overfitting (validation-gap).

    Causes:
        - fine-tuning on one task or domain only, at a learning rate made for training from scratch
        - a training stage whose data leaves out what came before
        - a data mixture whose weights changed, or a source that ran out
        - representations that collapse under a loss for retrieval or contrast

    Next:
        1. Compare `first_step` with the data plan: which data has the run not seen since?
        2. Mix a few percent of the earlier data in again (replay), or lower the learning rate.
        3. Compare a checkpoint from `first_step` with the newest one on examples of the lost task.
    """

    needs: ClassVar[tuple[str, ...]] = ("metrics",)
    spoils_weights: ClassVar[bool] = True

    worse_share: float = threshold(0.1, "share of its best by which a loss must rise, or a score fall")
    worse_scales: float = threshold(
        4.0, "and by this many robust standard deviations of its change between evaluations"
    )
    evaluations_min: int = threshold(5, "recorded evaluations: fewer do not show how much they vary")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        loss = window.applied("loss")
        for name, series in sorted(window.metrics.items()):
            lower_is_better = is_loss(name)
            if not qualifier(name) or not (lower_is_better or is_score(name)):
                continue
            finite = np.isfinite(series.values)
            steps, values = series.steps[finite], series.values[finite]
            if len(values) < self.evaluations_min:
                continue
            cost = values if lower_is_better else -values
            best = int(np.argmin(cost))
            worse = float(cost[-LAST:].min() - cost[best])
            if best >= len(cost) - LAST or worse < max(
                self.worse_share * abs(float(values[best])), self.worse_scales * _noise(cost)
            ):
                continue
            if not _improves(loss, int(steps[best])):
                continue
            found.append(
                Symptom(
                    name="forgetting",
                    severity="warning",
                    first_step=int(steps[best]),
                    last_step=int(steps[-1]),
                    message=f"{name} went from {values[best]:.4g} at step {steps[best]} to {values[-1]:.4g} at step "
                    f"{steps[-1]}, while the training loss fell",
                    signals=("loss", name),
                    numbers={"best": float(values[best]), "now": float(values[-1])},
                )
            )
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))


def _noise(cost: FloatArray) -> float:
    """Robust standard deviation of the change between evaluations about its own trend."""
    change = np.diff(cost)
    return MAD_TO_SIGMA / 2**0.5 * median(np.abs(change - median(change)))


def _improves(loss: Series, since: int) -> bool:
    row = int(np.searchsorted(loss.steps, since))
    before, after = loss.values[max(0, row - LOSS_ROWS) : max(row, 1)], loss.values[-LOSS_ROWS:]
    return bool(len(before) and len(after) and median(after) < median(before))
