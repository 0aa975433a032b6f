"""Finds a model whose layers follow each other with nothing nonlinear between them: together they are one layer.

The graph of a loss is followed from its last layers down. Batch norm, dropout and average pooling leave a model linear.
A narrow layer in the middle is a design (a factorisation, a linear autoencoder); a wide one computes nothing that the
layers beside it could not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steadytrain.capture.looks.graph_nodes import OF_SHAPE, inputs_of_node, kind_of, plain_tensor, shape_of

LAYERS = frozenset({"Addmm", "Mm", "Convolution", "Linear"})
LINEAR = (
    LAYERS
    | OF_SHAPE
    | {"NativeBatchNorm", "CudnnBatchNorm", "NativeDropout", "FusedDropout", "AvgPool2D", "AdaptiveAvgPool2D", "Mean"}
    | {"Sum", "Add", "Sub", "Neg", "Cat", "Stack", "Split", "Embedding", "AccumulateGrad"}
)
"""Operations that are linear, or affine once training is over."""

NODES_MAX = 400
LAYERS_MIN = 2


def linear_layers(root: Any) -> int:
    """The layers of a model that has nothing nonlinear between any two of them, and no narrow one; 0 of all others.

    Args:
        root: the node that made the loss; None if it has no graph.
    """
    last = list(_last_layers(root)) if root is not None else []
    if not last:
        return 0
    layers = dict.fromkeys(last)
    for node in last:
        for below in _below(node):
            kind = kind_of(below)
            if kind not in LINEAR and not _drops(kind, below):
                return 0
            if kind in LAYERS:
                layers[below] = None
    hidden = [one for one in layers if one not in last]
    if len(layers) < LAYERS_MIN or not hidden or not all(_has_weights(one) for one in layers):
        return 0
    widest_end = max(_width(one) for one in last)
    return len(layers) if all(_width(one) > widest_end for one in hidden) else 0


def _last_layers(root: Any) -> Iterator[Any]:
    """The layers nearest to the loss."""
    waiting, seen = [root], {root}
    while waiting and len(seen) < NODES_MAX:
        node = waiting.pop()
        if kind_of(node) in LAYERS and _has_weights(node):
            yield node
            continue
        for one in inputs_of_node(node):
            if one not in seen:
                seen.add(one)
                waiting.append(one)


def _below(layer: Any) -> Iterator[Any]:
    waiting, seen = inputs_of_node(layer), {layer}
    while waiting and len(seen) < NODES_MAX:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting += inputs_of_node(node)


def _drops(kind: str, node: Any) -> bool:
    """Whether ``node`` is a dropout of a CPU: a product with 0 and a factor above 1."""
    if kind != "Mul" or len(inputs_of_node(node)) != 1:
        return False
    factors = plain_tensor(node, "other")
    if factors is None or not factors.is_floating_point() or not factors.numel():
        return False
    most = factors.max()
    return bool(most > 1.0) and bool(((factors == 0.0) | (factors == most)).all())


def _has_weights(layer: Any) -> bool:
    """Whether a parameter is among the inputs of a product."""
    return any(
        kind_of(one) == "AccumulateGrad" or any(kind_of(each) == "AccumulateGrad" for each in inputs_of_node(one))
        for one in inputs_of_node(layer)
    )


def _width(layer: Any) -> int:
    shape = shape_of(layer)
    return (shape[1] if kind_of(layer) == "Convolution" else shape[-1]) if len(shape) > 1 else 0
