"""Whether one tensor's gradient norm left the others: the reason to look closely, never an alarm by itself.

What all tensors share (a harder batch, the scale of the loss) is taken out by the median over tensors; what remains of
each is compared with itself some steps before. A layer that died or was zeroed shows 3 to 6 steps after its onset. As
an alarm the same test was too dear (11 of 37 healthy runs).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadytrain.statistics.medians import row_medians

BEFORE_ROWS, BEFORE_ROWS_MIN, NOW_ROWS = 24, 4, 3
TENSORS_MIN = 3
NATS, SCALES = 2.0, 6.0
"""By how much the logarithm of a norm changes against the others, and how many of its own scales that is at least."""

LEAST_SHARE = 1e-12
"""A norm of zero counts as this share of the median over tensors."""


def left_the_others(norms: NDArray[np.floating]) -> int | None:
    """The column that changed most against the median of all in the last rows, None where none did by enough.

    Args:
        norms: gradient norms, oldest step first, [steps, tensors]; negative or not finite where there is none.
    """
    rows = np.asarray(norms[-BEFORE_ROWS - NOW_ROWS :], np.float64)
    if len(rows) < BEFORE_ROWS_MIN + NOW_ROWS or rows.shape[1] < TENSORS_MIN:
        return None
    known = (np.isfinite(rows) & (rows >= 0)).all(axis=0)
    if np.count_nonzero(known) < TENSORS_MIN:
        return None
    rows = rows[:, known]
    gone = ((rows[:-NOW_ROWS] > 0).mean(axis=0) >= 0.5) & (rows[-NOW_ROWS:] == 0).all(axis=0)
    if gone.any():  # perhaps most of them, and then their median says nothing
        return int(np.flatnonzero(known)[np.argmax(gone)])
    middle = row_medians(rows)[:, None]
    if not (middle > 0).all():
        return None
    apart = np.log(np.maximum(rows / middle, LEAST_SHARE))
    before, now = apart[:-NOW_ROWS], apart[-NOW_ROWS:]
    level = row_medians(before.T)
    scale = 1.4826 * row_medians(np.abs(before - level).T)
    # The smallest of the last changes, all to one side: one odd batch is none.
    change = now - level
    least = np.where((change > 0).all(axis=0) | (change < 0).all(axis=0), np.abs(change).min(axis=0), 0.0)
    left = least - np.maximum(NATS, SCALES * scale)
    at = int(np.argmax(left))
    return int(np.flatnonzero(known)[at]) if left[at] >= 0 else None
