"""Whether a loss, or a gradient, is as much larger as its batch: then it is a sum over rows, and no row is worse."""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.catalog import declared
from steadytrain.statistics.medians import median

LARGER_RATIO = 3.0
"""A batch of so many times as many rows as usual is a larger one."""

ROW_RATIO = 1.5
"""A row of it may cost this many times as much as one of a usual batch."""

HIGH_RATIO = 2.0
"""Losses above so many times the usual one are those that have to be explained."""

USUAL_STEPS_MIN = 8
LOSS, NORM = "loss", "gradient_norm"


def of_larger_batches(window: Window, symptom: Symptom) -> str:
    """Why a spike is that of a batch with more rows, whose loss is a sum over them; "" if it is not."""
    kind = declared(symptom.name)
    if not (kind.bursts or kind.counts_rising_loss):
        return ""
    signal = NORM if "gradient" in symptom.name else LOSS
    values, rows = window.applied(signal), window.series("samples")
    there = rows.values[(rows.steps >= symptom.first_step) & (rows.steps <= symptom.last_step)]
    if not len(there) or there.max() < LARGER_RATIO * rows.values.min():
        return ""  # no batch of it is larger than any other; what follows takes long for a long log
    steps = np.intersect1d(values.steps, rows.steps)
    if len(steps) <= USUAL_STEPS_MIN:
        return ""
    value = values.values[np.isin(values.steps, steps)]
    row = rows.values[np.isin(rows.steps, steps)]
    usual = median(row)
    ordinary = row <= usual * ROW_RATIO
    if ordinary.sum() < USUAL_STEPS_MIN or not usual > 0.0:
        return ""
    level = median(value[ordinary])
    during = (steps >= symptom.first_step) & (steps <= symptom.last_step)
    high = during & (value > HIGH_RATIO * level)
    if not high.any() or not level > 0.0:
        return ""
    ratios, costs = row[high] / usual, value[high] / level
    if (ratios < LARGER_RATIO).any() or (costs > ROW_RATIO * ratios).any():
        return ""
    return f"the loss is a sum over rows, and the batch of step {steps[high][0]} has {ratios[0]:.3g} times as many"
