"""Whether an update applies what a loss of another optimizer left in its gradients.

In a GAN the generator's loss goes through the discriminator and leaves a gradient there that is meant for nobody. If it
is not cleared before the discriminator's own backward, the discriminator is also trained to be fooled. A model may add
up two losses on purpose, with an update of another part in between; then the two gradients do not oppose each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

ELEMENTS_MAX = 1 << 20
"""Elements of gradients that are kept from one backward to the update."""


class ForeignGradients:
    """Compares, for one stream, the gradients at the begin of each backward with those at the update."""

    def __init__(self) -> None:
        self._filled = self._between = False
        self._before: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def backward_begins(self, reached: Sequence[Tensor]) -> None:
        """A backward is about to reach these parameters."""
        there = [one for one in reached if one.grad is not None and one.grad.layout == torch.strided]
        if self._between or self._before:
            holds = any(bool(one.grad.any()) for one in there if one.grad is not None)
            if not holds:
                self._before = []  # what was left was cleared before this backward
            elif self._between and not self._before:
                self._before = list(_copies(there))
        self._filled, self._between = True, False

    def other_updated(self) -> None:
        """Another optimizer has made its update."""
        self._between = self._filled

    def updated(self) -> None:
        self._filled = self._between = False
        self._before = []

    @torch.no_grad()
    def rows(self) -> Iterator[tuple[str, float]]:
        """``foreign:gradients``: the cosine of the gradient that was left and of what came on top; none without one."""
        dot = left = added = 0.0
        for one, before in self._before:
            if one.grad is None or one.grad.shape != before.shape:
                return
            more = one.grad.double() - before
            dot += float((more * before).sum())
            left, added = left + float(before.square().sum()), added + float(more.square().sum())
        if left > 0.0 and added > 0.0 and math.isfinite(left * added):
            yield "foreign:gradients", dot / math.sqrt(left * added)


def _copies(parameters: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    room = ELEMENTS_MAX
    for one in parameters:
        if one.grad is not None and one.numel() <= room:
            room -= one.numel()
            yield one, one.grad.double()
