"""Sums over an index that repeats, written by ``+=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class OverwrittenSums(SourceRule):
    """Values with the same index overwrite each other: `total[index] += values` adds only one of them.

    Means:
        `total[index]` is read once, the values are added, and the result is written back once. Where an index occurs
        several times, only one of its values stays. A node of a graph then hears one of its neighbours in place of
        all, and a segment holds one of its rows. No error is raised, and the loss still falls to what that allows.

    Causes:
        - messages that are summed by `nodes[destination] += messages`
        - segments, clusters or words that are summed by their numbers
        - the same in NumPy, where `np.add.at` is meant

    Next:
        1. Use `total.index_add_(0, index, values)` or `scatter_add_`.
        2. Compare the sum of the result with the sum of the values.
    """

    kind: ClassVar[str] = "indexed-sum"
    says: ClassVar[str] = (
        "adds to a tensor through an index that may repeat: of values with the same index only one is kept "
        "(overwritten), not their sum; index_add_ or scatter_add_ sums them"
    )
