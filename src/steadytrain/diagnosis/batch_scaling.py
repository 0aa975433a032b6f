"""The learning rate against the batch: a batch that grows allows a rate that grows with it, or with its root, not more.

Source: Goyal and others 1706.02677 (linear scaling); Krizhevsky 1404.5997 (its root).
"""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import FloatArray, Window

GROWN_MIN = 1.5
"""The batch must grow by this factor, and the rate by this factor more than the batch, before anything is reported."""

UNITS = ("tokens", "samples")
ROWS = 8
"""Steps before and after that must have the smaller and the larger batch: the last one of an epoch is often small."""


def rate_beyond_batches(window: Window, onset: int) -> str | None:
    """How far the rate outgrew the batch from the first change of its size to ``onset``, None where it did not.

    Examples:
        the batch grew from 16 to 128 samples (8 times), the rate from 0.007 to 0.448 (64 times)
    """
    rates = window.series("learning_rate")
    for unit in UNITS:
        sizes = window.applied(unit)
        known = (sizes.steps <= onset) & np.isfinite(sizes.values) & (sizes.values > 0)
        steps, values = sizes.steps[known], sizes.values[known]
        grown = next((at for at in np.flatnonzero(values[1:] >= GROWN_MIN * values[:-1]) if _lasts(values, at)), None)
        if grown is None:
            continue
        before = int(steps[grown])
        first, last = rates.between(0, before).values, rates.between(0, onset).values
        if not len(first) or not np.isfinite([first[-1], last[-1]]).all() or first[-1] <= 0:
            return None
        batch, rate = float(values[-1] / values[grown]), float(last[-1] / first[-1])
        if batch < GROWN_MIN or rate < GROWN_MIN * batch:
            continue
        return (
            f"the batch grew from {values[grown]:.0f} to {values[-1]:.0f} {unit} ({batch:.3g} times), the rate from "
            f"{first[-1]:.3g} to {last[-1]:.3g} ({rate:.3g} times): the linear scaling rule allows {batch:.3g} times; "
            "a factor of the first batch size that multiplies the current rate, not the first one, compounds"
        )
    return None


def _lasts(values: FloatArray, at: np.intp | int) -> bool:
    before, after = values[max(0, at + 1 - ROWS) : at + 1], values[at + 1 : at + 1 + ROWS]
    return bool(len(after) and np.median(after) >= GROWN_MIN * np.median(before) and after.min() > before.max())
