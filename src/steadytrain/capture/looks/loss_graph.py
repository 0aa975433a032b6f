"""Reads the autograd graph of a loss before its backward runs: which parameters it trains and how it is computed.

This needs no hook and replaces no function, because autograd keeps every operation between the parameters and the loss,
with shapes. Compiled code is one operation in the graph, and its inside stays unknown. Tensors that were saved through
the script's own hooks (checkpointing, offloading) are not read, because reading them would run those hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.core.torch_private import (
    NODE_SHAPES,
    SAVED_CAUSAL,
    SAVED_DIMENSION,
    SAVED_HOOK,
    SAVED_IGNORED,
)

NODES_MAX = 100_000
"""Nodes read per graph; the largest models have some ten thousand operations."""

OF_SHAPE = frozenset(
    {"View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Slice", "Squeeze", "Unsqueeze", "Select"}
    | {"Index", "ToCopy", "Clone", "Alias", "Narrow", "Expand"}
)
"""Operations that rearrange or copy values without changing them."""

MAKES_SCORES = frozenset({"Addmm", "Mm", "Bmm", "Linear", "Convolution"})
LIKELIHOODS = frozenset({"NllLoss", "NllLoss2D", "NllLossNd"})
FUSED_DISTANCES = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"})
LOSSES = LIKELIHOODS | FUSED_DISTANCES | {"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"}


@dataclass
class Likelihood:
    """One negative log-likelihood in the graph: its targets, and the target value that it ignores."""

    targets: Tensor
    ignored: int


@dataclass
class LossGraph:
    """The contents of one loss's graph.

    ``parameters`` are those that this backward fills, by id. ``misuses`` counts each wrong way to compute the loss,
    by name. ``attention`` has one entry per square attention: the weights from each place to the next one, or a bool
    that is True for a causal kernel and False without a mask. ``whole`` is False if the graph exceeds ``NODES_MAX``.
    """

    parameters: dict[int, nn.Parameter] = field(default_factory=dict)
    misuses: dict[str, float] = field(default_factory=dict)
    likelihoods: list[Likelihood] = field(default_factory=list)
    attention: list[Tensor | bool] = field(default_factory=list)
    whole: bool = True


@torch.no_grad()
def read_graph(root: Tensor) -> LossGraph:
    """Read the graph of ``root``, a loss before its backward. This synchronises no device."""
    graph = LossGraph()
    for node in _nodes(root.grad_fn, graph):
        variable = getattr(node, "variable", None)
        if isinstance(variable, nn.Parameter):
            graph.parameters[id(variable)] = variable
            continue
        kind = kind_of(node)
        if kind in LIKELIHOODS:
            _read_likelihood(node, graph)
        if kind in LOSSES or kind in ("LogSoftmax", "Sub"):
            _read_loss(kind, node, graph)
        if kind == "Softmax" or kind.startswith("ScaledDotProduct"):
            _read_attention(kind, node, graph)
    return graph


def kind_of(node: Any) -> str:
    """The operation of ``node``: ``Addmm`` for ``AddmmBackward0``."""
    return re.sub(r"Backward\d*$", "", type(node).__name__)


def saved_tensor(node: Any, name: str) -> Tensor | None:
    """The tensor that ``node`` saved as ``name``; None if there is none, or if reading it would run a script's hook."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or SAVED_HOOK.on(raw, raw) is not None:
        return None
    value = getattr(node, f"_saved_{name}")
    return value.detach() if isinstance(value, Tensor) else None


def _nodes(first: Any, graph: LossGraph) -> Iterator[Any]:
    waiting, seen = [first] if first is not None else [], {first}
    while waiting:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                if len(seen) > NODES_MAX:
                    graph.whole = False
                    return
                seen.add(following)
                waiting.append(following)


def _shape(node: Any) -> tuple[int, ...]:
    """The output shape of ``node``; empty if unknown."""
    shapes = NODE_SHAPES.on(node) or ()
    return tuple(int(size) for size in shapes[0].shape) if shapes else ()


def _inputs(node: Any) -> list[Any]:
    return [one for one, _ in node.next_functions if one is not None]


def _made_by(node: Any) -> Any:
    """The node that computed the first input of ``node``, past the operations ``OF_SHAPE``; None if there is none."""
    following = _inputs(node)
    while following and kind_of(following[0]) in OF_SHAPE:
        following = _inputs(following[0])
    return following[0] if following else None


def _read_loss(kind: str, node: Any, graph: LossGraph) -> None:
    if kind in FUSED_DISTANCES or kind == "Sub":
        _read_distance(kind, node, graph)
    maker = _made_by(node)
    made = kind_of(maker) if maker is not None else ""
    found = ""
    if made == "Softmax" and kind in LOSSES and _classes(maker) == 1:
        found = "softmax-of-one"
    elif kind == "LogSoftmax" and made == "Softmax":
        found = "softmax-twice"
    elif kind in LIKELIHOODS and made == "LogSoftmax":
        inner = _made_by(maker)
        if _classes(maker) == 1:
            found = "softmax-of-one"
        elif inner is not None and kind_of(inner) == "Sigmoid":
            found = "sigmoid-before-softmax"
    elif kind in LIKELIHOODS and made in ("Softmax", "Sigmoid"):
        found = "probabilities-as-logarithms"
    elif kind in LIKELIHOODS and made in MAKES_SCORES:
        found = "scores-as-logarithms"
    elif kind == "BinaryCrossEntropyWithLogits" and made in ("Sigmoid", "Softmax"):
        found = "sigmoid-twice"
    if found:
        graph.misuses[found] = graph.misuses.get(found, 0.0) + 1.0


def _classes(node: Any) -> int:
    shape, dimension = _shape(node), _signed(SAVED_DIMENSION.on(node, 0))
    return shape[dimension] if -len(shape) <= dimension < len(shape) else 0


def _read_distance(kind: str, node: Any, graph: LossGraph) -> None:
    """Find predictions [N, 1] or [N] that broadcast to [N, N] against targets without gradients."""
    inputs = _inputs(node)
    if len(inputs) != 1:
        return  # both sides are trained: the script compares pairs on purpose
    spread = _shape(node) if kind == "Sub" else _shape(inputs[0])
    before = inputs[0]
    while kind_of(before) == "Expand" and _inputs(before):
        before = _inputs(before)[0]
    shape = _shape(before)
    if len(spread) != 2 or spread[0] != spread[1] or spread[0] < 2 or shape not in ((spread[0], 1), (spread[0],)):
        return
    if kind == "Sub" and kind_of(before) in ("Unsqueeze", "View", "UnsafeView", "ReshapeAlias"):
        return  # the script reshaped the column on purpose
    graph.misuses["broadcast"] = float(spread[0])


def _read_likelihood(node: Any, graph: LossGraph) -> None:
    targets = saved_tensor(node, "target")
    if targets is not None and not _shape(node):  # the script may still mask a loss per label
        graph.likelihoods.append(Likelihood(targets.detach(), _signed(SAVED_IGNORED.on(node, -100))))


def _signed(number: int) -> int:
    """Restore the sign: torch stores a node's negative numbers as unsigned 64-bit."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _read_attention(kind: str, node: Any, graph: LossGraph) -> None:
    shape = _shape(node)
    if kind == "Softmax":
        if len(shape) >= 3 and shape[-1] == shape[-2] > 1 and (weights := saved_tensor(node, "result")) is not None:
            graph.attention.append(weights.diagonal(1, -2, -1))
        return
    if SAVED_CAUSAL.on(node, False):
        graph.attention.append(True)
        return
    query, key = saved_tensor(node, "query"), saved_tensor(node, "key")
    if query is None or key is None or query.shape[-2] != key.shape[-2]:
        return
    mask = saved_tensor(node, "attn_mask")
    mask = mask if mask is not None else saved_tensor(node, "attn_bias")
    if mask is None:
        graph.attention.append(False)
    elif mask.dim() >= 2 and mask.shape[-1] == mask.shape[-2] > 1:
        open_ = mask.diagonal(1, -2, -1)
        graph.attention.append(open_.float() if mask.dtype == torch.bool else open_.float().exp())
