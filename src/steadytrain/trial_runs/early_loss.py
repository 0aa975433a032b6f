"""The loss of a step at the moment when its backward begins.

A probe needs the loss alone, and a backward takes two thirds of a step. So a probe ends where its backward begins,
provided that the step before had one backward, and that its root was the loss that the gate measured (no gradient
scaler, no accumulation).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class EarlyLoss:
    """Compares the roots of backward calls with what the gate measures."""

    def __init__(self) -> None:
        self._roots: list[float] = []
        self.is_loss = False
        """Whether the root of the only backward was the loss of the last step."""

    def of(self, root: Tensor) -> float:
        """The value of the root, as the gate reads it."""
        value = float(root.detach().reshape(()).to(torch.float32))
        self._roots.append(value)
        return value

    def gate(self, losses: tuple[float, ...]) -> float | None:
        """The gate of a step that was not a probe measured ``losses``. Returns their mean, None without any."""
        self.is_loss = len(losses) == 1 and list(losses) == self._roots
        self._roots.clear()
        return math.fsum(losses) / len(losses) if losses else None
