"""Finds a loss that is masked per place, and then averaged over all places, the masked ones too."""

from __future__ import annotations

from typing import Any

import torch

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, plain_tensor, shape_of

LENGTH_MIN, ROWS_MIN = 4, 2


@torch.no_grad()
def padded_share(node: Any) -> float:
    """The share of places that a mask of padding sets to zero before the mean ``node`` over all of them; else 0.

    A mask of padding is 1 at the beginning of each row and 0 from some place on, which differs from row to row.
    """
    inputs = inputs_of_node(node)
    if shape_of(node) or len(inputs) != 1 or kind_of(inputs[0]) != "Mul":
        return 0.0
    trained = [following is not None for following, _ in inputs[0].next_functions]
    mask = plain_tensor(inputs[0], "self" if trained == [False, True] else "other") if sum(trained) == 1 else None
    while mask is not None and mask.dim() > 2 and mask.shape[-1] == 1:
        mask = mask[..., 0]
    if mask is None or mask.dim() != 2 or mask.shape[0] < ROWS_MIN or mask.shape[1] < LENGTH_MIN:
        return 0.0
    shown = mask != 0
    lengths = shown.sum(1)
    ends = bool((shown.int().diff(dim=1) <= 0).all()) and bool(((mask == 0) | (mask == 1)).all())
    differ = 0 < int(lengths.min()) < int(lengths.max())
    return 1.0 - float(shown.float().mean()) if ends and differ else 0.0
