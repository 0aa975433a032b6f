"""Whether a rise only follows the targets of the loss, which move with the model (the fact ``moving_targets``).

A value function whose returns grow, or whose target network was just copied, has a loss and gradients that grow, and
loses nothing by it. What shows harm all the same: a rate that jumped, a loss a thousand times all before it, weights or
updates that grow by orders of magnitude.
"""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import COPY_FOLLOWS, OWN_OUTPUTS, OWN_ROLLOUTS, FloatArray, Series, Symptom, Window
from steadytrain.grouping.catalog import declared
from steadytrain.statistics.rolling_baseline import stride_of
from steadytrain.statistics.run_away import grew, ran_away

UPDATE_RATIO = 30.0
"""A value function that learns moves its weights by less: largest update over the median before."""

RATE_RATIO, RATE_STRIDES = 4.0, 64
"""A rate that rose at once by this much, so many logged steps before a rise or less, may be its reason."""

AFTER_STRIDES = 16
"""And what grows this soon after its last step belongs to it."""

REASONS = {
    COPY_FOLLOWS: "the targets of the loss come from a copy that follows the model, and it moved",
    OWN_ROLLOUTS: "the model trains on data that it collects itself, and its targets grow with it",
    OWN_OUTPUTS: "the targets of the loss are outputs of the model without their gradient, and move with it",
}


def follows_targets(window: Window, symptom: Symptom) -> str:
    """Why the targets explain a rise, or ""."""
    fact = window.facts.get("moving_targets", 0.0)
    kind = declared(symptom.name)
    spikes = kind.grows and kind.bursts and symptom.signals == ("loss",)  # a rare end of an episode
    if not fact or not (kind.counts_rising_loss or spikes):
        return ""
    stride = stride_of(window.steps)
    first, last = symptom.first_step, symptom.last_step + AFTER_STRIDES * stride
    harm = (
        _rate_jumped(window.applied("learning_rate"), first - RATE_STRIDES * stride, last)
        or ran_away(window, first, last)
        or grew(_updates(window), first, last, UPDATE_RATIO)
    )
    return "" if harm else REASONS.get(fact, "")


def _rate_jumped(rate: Series, first_step: int, last_step: int) -> bool:
    """Whether the rate rose from one step to the next by more than warm-ups and restarts in small steps do."""
    ratios: FloatArray = rate.values[1:] / np.maximum(rate.values[:-1], np.finfo(np.float64).tiny)
    inside = (rate.steps[1:] >= first_step) & (rate.steps[1:] <= last_step)
    return bool((inside & (rate.values[:-1] > 0) & (ratios > RATE_RATIO)).any())


def _updates(window: Window) -> Series:
    """The global norm of the update, at the steps that measured it."""
    table = window.tables.get("tensors")
    if table is None or "update_norm" not in table.columns or not len(table):
        return Series(np.zeros(0, np.int64), np.zeros(0, np.float64))
    norms = table.values[:, :, table.columns.index("update_norm")].astype(np.float64)
    here = ~np.isnan(norms).all(axis=1)
    return Series(table.steps[here], np.sqrt(np.nansum(norms[here] ** 2, axis=1)))
