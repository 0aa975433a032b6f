"""Where a loss jumped that was not finite later. Pure."""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import Window

BURST_STEPS_MAX, BURST_LEVEL_MIN = 128, 16
BURST_FACTOR, CALM_FACTOR = 10.0, 3.0
"""A jump goes from below three times the level to above ten times in a step; a rate that is too high takes several."""


def burst_before(window: Window, step: int) -> int | None:
    """The step at which the loss suddenly jumped far above its level and stayed there until it was not finite at
    ``step``; None if it did not.

    The state is damaged from there on, so a trial that begins later finds only what postpones the end.
    """
    series = window.series("loss")
    there = (series.steps < step) & (series.steps >= step - BURST_STEPS_MAX) & np.isfinite(series.values)
    steps, values = series.steps[there], series.values[there]
    level = float(np.quantile(values, 0.25)) if len(values) > BURST_LEVEL_MIN else 0.0
    high = values > BURST_FACTOR * level
    if level <= 0 or not len(high) or not high[-1]:
        return None
    calm = np.flatnonzero(~high)
    if not len(calm) or calm[-1] + 1 >= len(steps) or values[calm[-1]] > CALM_FACTOR * level:
        return None
    return int(steps[calm[-1] + 1])
