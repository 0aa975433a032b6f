"""Which shapes met in a loss that compares N predictions with N x N targets, or one target with several values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from steadytrain.capture.looks.graph_nodes import plain_tensor

ROW, COLUMN, TABLE = 1.0, 2.0, 3.0
"""Targets [N], [N, 1] and [N, N]."""


def broadcast_sides(node: Any, shape: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    """``broadcast-column`` says whether the predictions, of ``shape``, are [N, 1]; ``broadcast-targets`` what the
    targets are, where the graph keeps them. Nothing for predictions with more axes."""
    if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
        return
    yield "broadcast-column", float(len(shape) == 2)
    targets = _targets(node)
    if targets is None or targets.dim() > 2:
        return
    if targets.dim() == 1 or targets.shape[0] == 1 or targets.stride(0) == 0:
        yield "broadcast-targets", ROW
    else:
        yield "broadcast-targets", COLUMN if targets.shape[1] == 1 or targets.stride(1) == 0 else TABLE


def _targets(node: Any) -> Tensor | None:
    """The side of a distance that is not trained, where the graph keeps it."""
    trained = [following is not None for following, _ in node.next_functions]
    if len(trained) != 2 or trained.count(True) != 1:
        return None
    return plain_tensor(node, "target" if trained[0] else "self")


def stretched(node: Any) -> float:
    """The length of the last axis along which a target was stretched to the shape of the predictions; 0 for none.

    ``mse_loss`` and its like stretch it themselves, and the graph keeps what they made. A single number is meant.
    """
    target = _targets(node)
    if target is None:
        return 0.0
    axes = [(length, stride) for length, stride in zip(target.shape, target.stride(), strict=True) if length > 1]
    stretched_axes = [length for length, stride in axes if stride == 0]
    return float(stretched_axes[-1]) if 0 < len(stretched_axes) < len(axes) else 0.0
