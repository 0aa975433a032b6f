"""Whether numbers of a run left everything before them behind, by so much that no plan explains it."""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import Series, Window

LOSS_RATIO, WEIGHT_RATIO = 1e3, 10.0
"""Largest over the largest, and over the median, before. Chosen: rollouts of 12 steps in the place of 1 raise a summed
loss by a factor of 5 over its first value, and one that learns values grows with its returns."""

LEVEL_STEPS, LEFT_RATIO = 64, 10.0
"""The median of so many losses is the level of the loss, and so many times that level is off its course."""


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


def rate_that_grew(
    window: Window, first_step: int, last_step: int, *, rows: int, ratio: float
) -> tuple[float, float] | None:
    """The learning rate at the first and the last step, if it never fell between them, at least ``rows`` logged steps,
    was never as high before, and grew by ``ratio``; else None."""
    rates = window.applied("learning_rate")
    before, since = rates.values[rates.steps <= first_step], rates.between(first_step, last_step).values
    if len(since) < rows or not len(before) or not since[0] > 0:
        return None
    grew_on = bool((np.diff(since) >= 0).all()) and since[0] >= before.max() and since[-1] >= ratio * since[0]
    return (float(since[0]), float(since[-1])) if grew_on else None


def left_course_at(window: Window, step: int) -> int | None:
    """The first step of the climb that went on until ``step`` and took the loss a thousandfold above its level and all
    before it; None if there was none."""
    loss = window.applied("loss")
    values, steps = np.abs(loss.values[loss.steps < step]), loss.steps[loss.steps < step]
    begins = len(values)
    while begins > 1 and values[begins - 1] > LEFT_RATIO * np.median(values[: begins - 1][-LEVEL_STEPS:]):
        begins -= 1
    before, since = values[:begins], values[begins:]
    if not len(before) or not len(since):
        return None
    level = float(np.median(before[-LEVEL_STEPS:]))
    far = level > 0 and since.max() > LOSS_RATIO * level and since.max() > before.max()
    return int(steps[begins]) if far else None
