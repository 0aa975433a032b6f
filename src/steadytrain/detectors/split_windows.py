"""Overlapping windows of a series are split at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SplitWindows(SourceRule):
    """Overlapping windows of a series are split into training and held-out ones at random.

    Means:
        The source of the script cuts windows out of a series that begin nearer to each other than they are long, and
        then draws which of them are held out. Each held-out window lies between training windows that hold nearly all
        of it, and its target is among their values. The score says how well the model remembers, and nothing of what
        comes after the series.

    Causes:
        - `train_test_split(windows, targets)`, which shuffles by default
        - `random_split` of a data set whose row is `series[i : i + length]`
        - a drawn order before the boundary: `windows[order[:cut]]`

    Next:
        1. Cut the series in time first, and make the windows of each part: `series[:cut]`, `series[cut:]`.
        2. With many series, hold out whole series.
        3. Evaluate again: that score is the real one.
    """

    kind: ClassVar[str] = "split-windows"
    says: ClassVar[str] = (
        "splits overlapping windows of a series at random: held-out windows lie within those that are trained on"
    )
