"""Whether numbers of a run left everything before them behind, by so much that no plan explains it."""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import Series, Window

LOSS_RATIO, WEIGHT_RATIO = 1e3, 10.0
"""Largest over the largest, and over the median, before. Chosen: rollouts of 12 steps in the place of 1 raise a summed
loss by a factor of 5 over its first value, and one that learns values grows with its returns."""


def ran_away(window: Window, first_step: int, last_step: int) -> bool:
    """Whether the loss rose a thousandfold above all before it, or the weights grew tenfold."""
    loss, weights = window.applied("loss"), window.applied("parameter_norm")
    return grew(loss, first_step, last_step, LOSS_RATIO, high=1.0) or grew(weights, first_step, last_step, WEIGHT_RATIO)


def grew(series: Series, first_step: int, last_step: int, ratio: float, *, high: float = 0.5) -> bool:
    """Whether the largest value of the steps is ``ratio`` times the quantile ``high`` of those before."""
    before = np.abs(series.values[series.steps < first_step])
    since = np.abs(series.between(first_step, last_step).values)
    if not len(before):  # it begins with the run: the first steps are what came before
        before, since = since[:1], since[1:]
    before, since = before[before > 0], since[np.isfinite(since)]
    return bool(len(before) and len(since) and since.max() > ratio * np.quantile(before, high))
