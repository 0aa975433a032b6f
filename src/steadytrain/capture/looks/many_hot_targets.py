"""Finds targets with several ones in a row in a cross-entropy, whose softmax lets one class win.

Only the form in which ``cross_entropy`` computes it for targets that are probabilities: one sum over everything. A
multinomial likelihood (sums per row, or each row divided by its ones) is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from steadytrain.capture.looks.graph_nodes import (
    OF_SHAPE,
    inputs_of_node,
    kind_of,
    made_by,
    plain_tensor,
    shape_of,
    signed,
)
from steadytrain.core.torch_private import SAVED_DIMENSION

LAYERS = frozenset({"Addmm", "Mm", "Convolution", "Linear"})
ROWS_MIN, CLASSES_MAX = 8, 1000
MANY_SHARE_MIN, OTHER_SHARE_MIN = 0.05, 0.1
"""Share of the rows with two ones or more, and of those without exactly one."""


@torch.no_grad()
def many_hot_targets(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """``many-hot`` is the share of rows whose targets, all 0 or 1, do not sum to 1."""
    product = _product(node) if kind == "Neg" and not shape_of(node) else None
    if product is None:
        return
    sides = [one for one, _ in product.next_functions]
    softmax = next((one for one in sides if one is not None), None)
    if sides.count(None) != 1 or softmax is None or kind_of(softmax) != "LogSoftmax" or not _is_of_layer(softmax):
        return
    targets, shape = plain_tensor(product, "other" if sides[0] is not None else "self"), shape_of(softmax)
    axis = signed(SAVED_DIMENSION.on(softmax, 0))
    if targets is None or targets.shape != shape or len(shape) < 2 or not 2 < shape[axis] <= CLASSES_MAX:
        return
    ones = targets.sum(axis)
    if ones.numel() >= ROWS_MIN and bool(((targets == 0) | (targets == 1)).all()):
        share = float((ones != 1).float().mean())
        if share > OTHER_SHARE_MIN and float((ones >= 2).float().mean()) > MANY_SHARE_MIN:
            yield "many-hot", share


def _product(node: Any) -> Any:
    """The product whose sum over everything ``node`` turns; None if it is something else."""
    for kind in ("Sum", "Mul"):
        following = inputs_of_node(node)
        if len(following) != 1 or kind_of(following[0]) != kind or (kind == "Sum" and shape_of(following[0])):
            return None
        node = following[0]
    return node


def _is_of_layer(softmax: Any) -> bool:
    """Whether a layer made the scores: those of contrastive losses are products of two batches."""
    maker = made_by(softmax)
    if maker is None or kind_of(maker) not in LAYERS:
        return False
    turned = [each for one in inputs_of_node(maker) if kind_of(one) in OF_SHAPE for each in inputs_of_node(one)]
    return any(kind_of(one) == "AccumulateGrad" for one in [*inputs_of_node(maker), *turned])
