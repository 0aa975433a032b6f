"""The training loss rises after each evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadytrain.core.model import FloatArray, IntArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.script_rows import script_rows

BEFORE_STEPS, AFTER_STEPS, GAP_STEPS = 6, 2, 4
SCALES_MAX = 4.0
"""One evaluation counts no more than this, in standard deviations."""

RATE_RATIO = 1.2
"""A rate that rises so much at an evaluation explains a loss that rises with it."""


@final
@dataclass(frozen=True)
class EvaluationSetback(Detector):
    """The training loss rises after each evaluation, and comes back: the evaluation may change the training.

    Means:
        The mean of the first two losses after each evaluation is compared with the level of the six before it and of
        six later ones, and that with all other places of the run. It is higher after nearly every evaluation, far
        beyond what batches differ by. Weights, statistics, a hidden state or the optimizer may not be what they were
        before it. It is a note, because plans look the same: harder data after each evaluation, a pass that begins
        with its longest rows, a hidden state that begins anew. Calls in training mode are no evaluation here: a
        policy collects its data so. A learning rate that rises there explains it, and it is not reported. Weights
        that are evaluated and then trained are replaced-weights.

    Causes:
        - adapters that are merged into the weights and not taken out, or averaged weights that are not swapped back
        - weights that are rounded, pruned or cast for an export in place
        - a model that stays in another mode, an optimizer that is made anew, a hidden state that is overwritten
        - no fault: harder data by plan, the longest rows first, a hidden state that begins anew

    Next:
        1. Compare the weights, buffers and the state of the optimizer right before and right after one evaluation.
        2. Evaluate a copy of the model, or put back all that was changed.
        3. Skip the evaluations for a while: the steps in the loss disappear with them.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)

    evaluations_min: int = threshold(5, "evaluations with six losses before and twelve after. Chosen")
    risen_share: float = threshold(0.8, "of the evaluations after which the loss is higher. Chosen")
    joint_scales: float = threshold(
        5.0, "standard deviations of the same contrast elsewhere, times the root of their number: by chance 3e-7"
    )
    level_share: float = threshold(0.05, "of the level before: how far the loss rises at least, as a median. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "evaluated")
        if not rows or window.facts.get("loss_may_rise"):
            return ()
        loss = window.applied("loss")
        at = np.unique(np.concatenate([row.steps for row in rows]))
        within = sum(len(row.steps) for row in rows if row.place == "within")
        is_ratio = bool((loss.values > 0).all())
        contrasts, places, levels = _contrasts(loss.steps, np.log(loss.values) if is_ratio else loss.values)
        here = np.isin(places, at) & ~_rate_rose(window, places)
        elsewhere = ~np.isin(places, np.concatenate([at + shift for shift in range(-AFTER_STEPS, BEFORE_STEPS)]))
        if here.sum() < self.evaluations_min or elsewhere.sum() < 4 * self.evaluations_min:
            return ()
        usual = median(contrasts[elsewhere])
        spread = MAD_TO_SIGMA * median(np.abs(contrasts[elsewhere] - usual))
        risen = contrasts[here] - usual
        joint = float(np.minimum(risen / max(spread, 1e-12), SCALES_MAX).sum() / np.sqrt(len(risen)))
        height, level = median(risen), median(levels[here])
        height, level = (np.expm1(height) * np.exp(level), np.exp(level)) if is_ratio else (height, abs(level))
        if (risen > 0).mean() < self.risen_share or joint < self.joint_scales or height < self.level_share * level:
            return ()
        steps = places[here]
        where = "" if within * 2 >= len(at) else ", which stand between two passes over the data"
        return (
            Symptom(
                name="evaluation-setback",
                severity="note",
                first_step=int(steps[0]),
                last_step=int(steps[-1]),
                message=f"the loss rises after {int((risen > 0).sum())} of {len(risen)} evaluations{where}, by "
                f"{height:.3g} from {level:.3g}: by plan, or is something of the training not put back?",
                signals=("loss", "script.value"),
                numbers={"evaluations": float(len(risen)), "height": float(height), "level": float(level)},
            ),
        )


def _rate_rose(window: Window, places: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    rates = window.applied("learning_rate")
    if len(rates) < 2:
        return np.zeros(len(places), np.bool_)
    rose = rates.steps[1:][rates.values[1:] > RATE_RATIO * rates.values[:-1]]
    return np.isin(places, rose)


def _contrasts(steps: IntArray, values: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """By step: the mean of the losses from it on less the level around them, and that level: the mean of the medians
    before and later, so that a slope cancels. Only where steps follow each other and losses are finite."""
    count = BEFORE_STEPS + AFTER_STEPS + GAP_STEPS + BEFORE_STEPS
    if len(steps) < count:
        return np.zeros(0), np.zeros(0, np.int64), np.zeros(0)
    spans, rows = sliding_window_view(steps, count), sliding_window_view(values, count)
    whole = (spans[:, -1] - spans[:, 0] == count - 1) & np.isfinite(rows).all(axis=1)
    rows, spans = rows[whole], spans[whole]
    levels = (np.median(rows[:, :BEFORE_STEPS], axis=1) + np.median(rows[:, -BEFORE_STEPS:], axis=1)) / 2
    after = rows[:, BEFORE_STEPS : BEFORE_STEPS + AFTER_STEPS].mean(axis=1)
    return after - levels, spans[:, BEFORE_STEPS], levels
