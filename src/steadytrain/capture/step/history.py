"""The contract of a stream's memory of its steps. Not here: an implementation (``detection``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from steadytrain.core.model import Reading, Window
from steadytrain.storage.segments import StepRecord


class History(Protocol):
    """The last steps of one stream, with the table readings of these steps."""

    facts: Mapping[str, float]

    @property
    def size_bytes(self) -> int:
        """The memory that the history uses."""

    def append(self, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        """Add a step; ``record`` has one gradient norm per name in ``tensor_names``."""

    def read(self, step: int, time: float, reading: Reading) -> None:
        """Add a reading of a table."""

    def forget(self, *, after: int) -> None:
        """Drop the steps after step ``after``: the run has returned to its state."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add evaluation metrics measured after ``step``."""

    def window(self, *, until: float = math.inf) -> Window:
        """All steps, without the gradient norms of single tensors."""

    def recent(self, *, until: float = math.inf) -> Window:
        """The last steps, with the gradient norms of single tensors."""
