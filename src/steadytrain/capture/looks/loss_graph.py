"""The graph behind a loss, read before its backward runs: what is trained by it, and how the loss is made.

Nothing is hooked and no function is replaced: autograd has kept every operation between the parameters and the loss,
with the shapes. Compiled code is one operation in it, and what happens inside stays unknown. A tensor that was saved
through hooks of the script (checkpointing, offloading) is not asked for, since that would run them.
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
"""A graph is followed so far; the largest models have some ten thousand operations."""

OF_SHAPE = frozenset(
    {"View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Slice", "Squeeze", "Unsqueeze", "Select"}
    | {"Index", "ToCopy", "Clone", "Alias", "Narrow", "Expand"}
)
"""Operations that move values and change none."""

MAKES_SCORES = frozenset({"Addmm", "Mm", "Bmm", "Linear", "Convolution"})
LIKELIHOODS = frozenset({"NllLoss", "NllLoss2D", "NllLossNd"})
FUSED_DISTANCES = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"})
LOSSES = LIKELIHOODS | FUSED_DISTANCES | {"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"}


@dataclass
class Likelihood:
    """One likelihood of classes in the graph: its targets as the loss got them."""

    targets: Tensor
    ignored: int


@dataclass
class LossGraph:
    """What stands behind one loss.

    ``parameters`` are those that this backward fills, by id. ``misuses`` say how the loss is made where it is not what
    it looks like, each with a count. ``attention`` holds, of each square attention, whether a place sees the one after
    it: its weights there, or whether it is causal by itself.
    """

    parameters: dict[int, nn.Parameter] = field(default_factory=dict)
    misuses: dict[str, float] = field(default_factory=dict)
    likelihoods: list[Likelihood] = field(default_factory=list)
    attention: list[Tensor | bool] = field(default_factory=list)
    whole: bool = True


@torch.no_grad()
def read_graph(root: Tensor) -> LossGraph:
    """Follow the graph of ``root``, a loss whose backward has not run. Nothing is computed or synchronised."""
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
    """``AddmmBackward0`` is ``Addmm``."""
    return re.sub(r"Backward\d*$", "", type(node).__name__)


def saved_tensor(node: Any, name: str) -> Tensor | None:
    """What ``node`` saved under ``name``; None where it saved none, or where asking would run a hook of the script."""
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
    """The shape of what ``node`` made; empty where it is not known."""
    shapes = NODE_SHAPES.on(node) or ()
    return tuple(int(size) for size in shapes[0].shape) if shapes else ()


def _inputs(node: Any) -> list[Any]:
    return [one for one, _ in node.next_functions if one is not None]


def _made_by(node: Any) -> Any:
    """What made the first input of ``node``, past operations that only move values; None where that is no operation."""
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
    """Predictions [N, 1] or [N] that became a table [N, N] with the targets, of which no gradient is asked."""
    inputs = _inputs(node)
    if len(inputs) != 1:
        return  # both sides are trained: pairs are meant
    spread = _shape(node) if kind == "Sub" else _shape(inputs[0])
    before = inputs[0]
    while kind_of(before) == "Expand" and _inputs(before):
        before = _inputs(before)[0]
    shape = _shape(before)
    if len(spread) != 2 or spread[0] != spread[1] or spread[0] < 2 or shape not in ((spread[0], 1), (spread[0],)):
        return
    if kind == "Sub" and kind_of(before) in ("Unsqueeze", "View", "UnsafeView", "ReshapeAlias"):
        return  # the script made the column on purpose
    graph.misuses["broadcast"] = float(spread[0])


def _read_likelihood(node: Any, graph: LossGraph) -> None:
    targets = saved_tensor(node, "target")
    if targets is not None and not _shape(node):  # a loss per label may still be masked by the script
        graph.likelihoods.append(Likelihood(targets.detach(), _signed(SAVED_IGNORED.on(node, -100))))


def _signed(number: int) -> int:
    """A negative number as torch keeps it in a node."""
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
