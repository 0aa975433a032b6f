"""What a stream of steps remembers of them: the contract of its memory. Not here: any such memory (``detection``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from steadytrain.core.model import Reading, Window
from steadytrain.storage.segments import StepRecord


class History(Protocol):
    """The last steps of one stream, with the tables that were read in them."""

    facts: Mapping[str, float]

    @property
    def size_bytes(self) -> int:
        """Memory that it holds."""

    def append(self, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        """One more step; ``record`` has the gradient norm of each of ``tensor_names``."""

    def read(self, step: int, time: float, reading: Reading) -> None:
        """One more reading of a table."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers that were measured beside training, after ``step``."""

    def window(self, *, until: float = math.inf) -> Window:
        """All steps, without the norms of single gradients."""

    def recent(self, *, until: float = math.inf) -> Window:
        """The last steps, with the norms of single gradients."""
