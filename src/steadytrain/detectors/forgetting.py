"""What the model could do on an earlier task is being lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.metric_names import is_loss, is_score, qualifier
from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.reference import MAD_TO_SIGMA

LAST = 2
"""Evaluations, the newest ones, that must all be worse: one may be bad luck."""

LOSS_ROWS = 64


@final
@dataclass(frozen=True)
class Forgetting(Detector):
    """A score of one task or domain falls while the current loss improves.

    Means:
        The evaluation of a named task (`eval_news_accuracy`, `val/code/loss`) was better and has become worse by a
        tenth, while the loss that is trained on still falls. The model pays for what it learns now with what it knew.
        An evaluation without a name of its own is the current task: that gets worse by overfitting (validation-gap).

    Causes:
        - fine-tuning on one task or domain only, at a learning rate made for training from scratch
        - a stage of training whose data leaves out what came before
        - a mixture whose weights changed, or a source that ran dry
        - representations that collapse under a loss for retrieval or contrast

    Next:
        1. Compare `first_step` with the data plan: what has not been seen since then?
        2. Mix some hundredths of the earlier data in again (replay), or lower the learning rate.
        3. Compare a checkpoint from `first_step` with the newest one on examples of the lost task.
    """

    needs: ClassVar[tuple[str, ...]] = ("metrics",)

    worse_share: float = threshold(0.1, "a loss risen, or a score fallen, by this share of its best is no accident")
    worse_scales: float = threshold(
        4.0, "and by this many robust standard deviations of its change between evaluations"
    )
    evaluations_min: int = threshold(5, "evaluations in view: fewer say nothing of how much they vary")

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
    return MAD_TO_SIGMA / 2**0.5 * float(np.median(np.abs(change - np.median(change))))


def _improves(loss: Series, since: int) -> bool:
    row = int(np.searchsorted(loss.steps, since))
    before, after = loss.values[max(0, row - LOSS_ROWS) : max(row, 1)], loss.values[-LOSS_ROWS:]
    return bool(len(before) and len(after) and np.median(after) < np.median(before))
