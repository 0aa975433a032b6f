"""The entropy of counted labels: what a guess costs that knows how frequent each label is."""

from __future__ import annotations

import math
from collections.abc import Sequence


def label_entropy(counts: Sequence[float]) -> float:
    """The entropy in nats of labels with these ``counts``, one for each class, of which at least one is not 0.

    With the correction of Miller and Madow (1955): few labels look less equal than they are.
    """
    total, seen = sum(counts), sum(count > 0 for count in counts)
    entropy = -math.fsum(count / total * math.log(count / total) for count in counts if count)
    return min(entropy + (seen - 1) / (2.0 * total), math.log(len(counts)))
