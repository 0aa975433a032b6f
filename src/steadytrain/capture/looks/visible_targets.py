"""Finds the target of a regression among the inputs of the model: the answer stands in the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

ROWS_MIN, ROWS_MAX = 16, 256
VALUES_MIN = 8
"""Different values of a target, below which an input may equal it by chance."""

PLACES_MIN, PLACES_MAX = 4, 1 << 14
TARGETS_MAX = 8
LEFT_MAX = 1e-9
"""Share of a target's variance that an exact line through an input leaves over: the rounding of 32 bits."""


@torch.no_grad()
def visible_targets(target: Tensor, given: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """``target-in-input`` is the place in a row of an input at which the target stands, in all rows of the batch, as it
    is or scaled; ``target-in-last-input`` the same, where that is the last step or the last feature.

    Only where an input is far larger than the target: an autoencoder is shown its target on purpose.
    """
    wanted = target[:ROWS_MAX].reshape(min(len(target), ROWS_MAX), -1).double()
    if len(wanted) < ROWS_MIN or wanted.shape[1] > TARGETS_MAX:
        return
    if any(len(torch.unique(one)) < VALUES_MIN for one in wanted.T):
        return
    wanted = wanted - wanted.mean(0)
    for one in given:
        if not one.is_floating_point() or one.dim() < 2 or len(one) != len(target) or one.dtype.itemsize < 4:
            continue
        width = one[0].numel()
        if not PLACES_MIN * wanted.shape[1] <= width <= PLACES_MAX:
            continue
        rows = one.detach()[:ROWS_MAX].reshape(len(wanted), -1).to(wanted.device).double()
        rows = rows - rows.mean(0)
        squares = rows.square().sum(0)[:, None] * wanted.square().sum(0)[None]
        left = 1.0 - (rows.T @ wanted).square() / squares.clamp(min=1e-300)
        best, places = left.min(0)
        if bool((best < LEFT_MAX).all()):
            place = int(places[-1])
            name = "target-in-last-input" if _is_last(place, tuple(one.shape[1:])) else "target-in-input"
            yield name, float(place)
            return


def _is_last(place: int, shape: tuple[int, ...]) -> bool:
    """Whether ``place`` of a row of ``shape`` lies in the last step, or is its last feature."""
    features = shape[-1]
    steps = shape[-2] if len(shape) > 1 else 1
    return place % features == features - 1 or (steps > 1 and place // features % steps == steps - 1)
