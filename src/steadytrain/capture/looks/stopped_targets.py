"""Finds losses that pull two parts of a model towards each other, with a gradient to one of them at a time.

The codebook loss of a VQ-VAE is one: ``mse(codes, outputs.detach()) + c * mse(outputs, codes.detach())``. The targets
of such a loss are the model's own outputs, and move with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, plain_tensor

DISTANCES = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"})
DIFFERENCES = "Pow"
NODES_MAX = 32
TARGETS_MIN = 16


@torch.no_grad()
def follows_itself(nodes: Sequence[Any]) -> bool:
    """Whether two of the ``nodes`` of one graph compare the same two tensors, each with a gradient to another one.

    Distances are compared by the memory of their tensors. Squares of a difference are compared by value: equal but for
    the sign, and made by other operations.
    """
    pairs = [_sides(node) for node in nodes if kind_of(node) in DISTANCES][:NODES_MAX]
    towards = {(own, other) for own, other in pairs if own and other}
    if any((other, own) in towards for own, other in towards if own != other):
        return True
    squared = [
        (made, value)
        for node in nodes
        if kind_of(node) == DIFFERENCES
        and (made := inputs_of_node(node))
        and (value := plain_tensor(node, "self")) is not None
        and value.numel() > 1
    ][:NODES_MAX]
    return any(
        one.shape == other.shape and first[0] is not second[0] and torch.equal(one.abs(), other.abs())
        for at, (first, one) in enumerate(squared)
        for second, other in squared[at + 1 :]
    )


def elements_of(node: Any) -> int:
    """How many elements a distance or square compares; 0 if unknown."""
    values = plain_tensor(node, "self")
    return values.numel() if values is not None else 0


@torch.no_grad()
def constant_target(node: Any) -> float | None:
    """The one number that all targets of a distance are; None if they differ, are few, or have a gradient."""
    if kind_of(node) not in DISTANCES or [following is not None for following, _ in node.next_functions][1:] != [False]:
        return None
    target = plain_tensor(node, "target")
    if target is None or target.numel() < TARGETS_MIN or target.is_meta:
        return None
    low, high = target.aminmax()
    return float(low) if bool(low == high) else None


def _sides(node: Any) -> tuple[int, int]:
    """The memory of the side of a distance that has a gradient, and of the side that has none; 0 where unknown."""
    sides = [plain_tensor(node, name) for name in ("self", "target")]
    trained = [following is not None for following, _ in node.next_functions]
    if len(trained) != len(sides) or trained.count(True) != 1:
        return 0, 0
    own, other = sides if trained[0] else reversed(sides)
    return _memory(own), _memory(other)


def _memory(tensor: Tensor | None) -> int:
    return tensor.data_ptr() if tensor is not None and tensor.numel() > 1 and not tensor.is_meta else 0
