"""Reads the autograd graph of a loss before its backward runs: which parameters it trains and how it is computed.

This needs no hook and replaces no function, because autograd keeps every operation between the parameters and the loss,
with shapes. Compiled code is one operation in the graph, and its inside stays unknown. Tensors that were saved through
the script's own hooks (checkpointing, offloading) are not read, because reading them would run those hooks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.attention_masks import Visible, visible
from steadytrain.capture.looks.binary_labels import KINDS as OF_BINARY
from steadytrain.capture.looks.binary_labels import Binary, binary_labels
from steadytrain.capture.looks.broadcast_sides import broadcast_sides, stretched
from steadytrain.capture.looks.cosine_scores import has_unscaled_cosines
from steadytrain.capture.looks.first_inputs import NORMS, FirstInputs
from steadytrain.capture.looks.flat_derivatives import KINDS as OF_DERIVATIVES
from steadytrain.capture.looks.graph_nodes import (
    OF_SHAPE,
    axis_before,
    dropped_in_front,
    inputs_of_node,
    kind_of,
    made_by,
    plain_tensor,
    saved_tensor,
    shape_of,
    signed,
)
from steadytrain.capture.looks.linear_models import linear_layers
from steadytrain.capture.looks.live_weights import PRODUCTS_MAX
from steadytrain.capture.looks.loss_findings import loss_findings
from steadytrain.capture.looks.masked_means import padded_share
from steadytrain.capture.looks.mixed_rows import Attended, attended, predicted_shape
from steadytrain.capture.looks.norm_values import values_a_channel
from steadytrain.capture.looks.padded_ends import last_place
from steadytrain.capture.looks.regression_targets import SQUARES, squared_target
from steadytrain.capture.looks.stopped_targets import (
    DIFFERENCES,
    DISTANCES,
    constant_target,
    elements_of,
    follows_itself,
)
from steadytrain.capture.looks.unit_ratios import surrogate
from steadytrain.capture.looks.unmasked_padding import pooled
from steadytrain.capture.looks.view_orders import MOVES_AXES, View, scrambled_view
from steadytrain.core.torch_private import SAVED_CAUSAL, SAVED_DIMENSION, SAVED_IGNORED

NODES_MAX = 100_000
"""Nodes read per graph; the largest models have some ten thousand operations."""

ATTENTIONS_MAX = 64

SUM_ROOM = 1e-2
"""How far the probabilities of 16 bits may sum up beside 1."""

MAKES_SCORES = frozenset({"Addmm", "Mm", "Bmm", "Linear", "Convolution"})
LIKELIHOODS = frozenset({"NllLoss", "NllLoss2D", "NllLossNd"})
LOSSES = LIKELIHOODS | DISTANCES | {"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"}

BEFORE_LIKELIHOOD = OF_SHAPE | {"Log", "Add", "Clamp", "ClampMin"}
BEFORE_PRODUCT = OF_SHAPE | {"Mul", "Div", "NativeDropout", "FusedDropout", "MaskedFill"}
"""Operations that may stand between a softmax and what reads it, and that keep its axes."""


@dataclass
class Likelihood:
    """One negative log-likelihood in the graph: its targets, the target value that it ignores, its number of classes.

    ``classes`` is 0 if unknown. ``logarithms`` are the log-probabilities, of the shape of the scores, where they are
    the log-softmax of what a layer gave: None where the scores were scaled in between, as of cosines, or unknown.
    """

    targets: Tensor
    ignored: int
    classes: int = 0
    logarithms: Tensor | None = None
    dropped: int = 0
    """Places of the scores that a slice leaves out at the front of each row."""

    weight: Tensor | None = None


@dataclass
class LossGraph:
    """The contents of one loss's graph.

    ``parameters`` are those that this backward fills, by id. ``misuses`` counts each wrong way to compute the loss,
    by name. ``attention`` has one entry per square attention: the weights from each place to the next one, or a bool
    that is True for a causal kernel and False without a mask. ``visible`` says
    what each attention sees. ``looked_up`` are the ids that embeddings got.
    ``attended`` has the sequences and the length of each self-attention, ``predicted`` the shape of what each loss
    function judges (or the first difference, where none is called), ``squared`` the targets of squared errors,
    ``distant`` those of other distances, ``binary`` the scores and targets of binary cross entropies.
    ``products`` are its first products of two tensors. ``views`` are those that scramble axes. ``ends`` are the rows
    and places of outputs whose last place is read, ``pools`` of those whose mean over the places is taken. ``inputs``
    are those of its first layers, and ``normalises`` says that it has normalisation layers. ``linear_layers`` counts
    layers without anything nonlinear between them (:mod:`linear_models`), ``norm_values`` the values a channel of its
    batch norms in training mode. ``follows_itself`` says that its targets are outputs of the model
    (:mod:`stopped_targets`). ``surrogates`` are the ratios and advantages of clipped policy gradients
    (:mod:`unit_ratios`). ``derivatives`` are the kinds of its operations that tell whether derivatives in it are flat
    (:mod:`flat_derivatives`). ``whole`` is False if the graph exceeds ``NODES_MAX``.
    """

    parameters: dict[int, nn.Parameter] = field(default_factory=dict)
    misuses: dict[str, float] = field(default_factory=dict)
    likelihoods: list[Likelihood] = field(default_factory=list)
    attention: list[Tensor | bool] = field(default_factory=list)
    visible: list[Visible] = field(default_factory=list)
    looked_up: list[Tensor] = field(default_factory=list)
    attended: list[Attended] = field(default_factory=list)
    predicted: list[tuple[int, ...]] = field(default_factory=list)
    squared: list[Tensor] = field(default_factory=list)
    distant: list[Tensor] = field(default_factory=list)
    binary: list[Binary] = field(default_factory=list)
    products: list[Any] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    pools: list[tuple[int, int]] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    normalises: bool = False
    linear_layers: int = 0
    norm_values: list[int] = field(default_factory=list)
    follows_itself: bool = False
    compared: set[int] = field(default_factory=set)
    derivatives: set[str] = field(default_factory=set)
    surrogates: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    whole: bool = True


@torch.no_grad()
def read_graph(root: Tensor) -> LossGraph:
    """Read the graph of ``root``, a loss before its backward. This synchronises no device."""
    graph = LossGraph()
    compared: list[Any] = []
    moved: set[Any] = set()
    first = FirstInputs()
    for node in _nodes(root.grad_fn, graph):
        variable = getattr(node, "variable", None)
        if isinstance(variable, nn.Parameter):
            graph.parameters[id(variable)] = variable
            continue
        kind = kind_of(node)
        graph.misuses.update(loss_findings(kind, node))
        if kind in LIKELIHOODS:
            _read_likelihood(node, graph)
        if kind in LOSSES or kind in ("LogSoftmax", "Sub"):
            _read_loss(kind, node, graph)
        if kind in LOSSES or (kind == DIFFERENCES and not graph.predicted):
            graph.predicted.append(predicted_shape(node))
        if kind == "Mul" and len(graph.products) < PRODUCTS_MAX:
            graph.products.append(node)
        if kind == "Minimum" and (ratios := surrogate(node)) is not None:
            graph.surrogates.append(ratios)
        if kind in OF_DERIVATIVES:
            graph.derivatives.add(kind)
        if kind in MOVES_AXES:
            moved.update(inputs_of_node(node))
        if node not in moved and (view := scrambled_view(kind, node)) is not None:
            graph.views.append(view)
        if (end := last_place(kind, node)) is not None:
            graph.ends.append(end)
        if (means := pooled(kind, node)) is not None:
            graph.pools.append(means)
        _read_targets(kind, node, graph)
        if kind in LIKELIHOODS or kind in ("Gather", "Bmm"):
            _read_axis(kind, node, graph)
        if kind in ("Softmax", "SafeSoftmax") or kind.startswith("ScaledDotProduct"):
            if kind != "SafeSoftmax":
                _read_attention(kind, node, graph)
            if (over := attended(kind, node)) is not None:
                graph.attended.append(over)
            if len(graph.visible) < ATTENTIONS_MAX and (seen := visible(kind, node)) is not None:
                graph.visible.append(seen)
        if kind == "Embedding" and (indices := saved_tensor(node, "indices")) is not None:
            graph.looked_up.append(indices)
        if kind in DISTANCES or kind == DIFFERENCES:
            compared.append(node)
            graph.compared.add(elements_of(node))
        first.take(kind, node)
        if values := values_a_channel(kind, node):
            graph.norm_values.append(values)
        graph.normalises = graph.normalises or kind in NORMS
        if kind == "Mean" and (share := padded_share(node)):
            graph.misuses["mean-over-padding"] = share
    graph.follows_itself = follows_itself(compared)
    graph.inputs = first.inputs()
    graph.linear_layers = linear_layers(root.grad_fn)
    return graph


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


def _read_loss(kind: str, node: Any, graph: LossGraph) -> None:
    if kind in DISTANCES or kind == "Sub":
        _read_distance(kind, node, graph)
    maker = made_by(node)
    made = kind_of(maker) if maker is not None else ""
    found = ""
    if made == "Softmax" and kind in LOSSES and _classes(maker) == 1:
        found = "softmax-of-one"
    elif kind == "LogSoftmax" and made == "Softmax":
        found = "softmax-twice"
    elif kind in LIKELIHOODS and made == "LogSoftmax":
        inner = made_by(maker)
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
    elif kind in ("LogSoftmax", "BinaryCrossEntropyWithLogits") and made == "Relu":
        found = "cut-scores"
    elif kind == "Sub" and _is_divergence_of_probabilities(node):
        found = "probabilities-as-logarithms"
    if found:
        graph.misuses[found] = graph.misuses.get(found, 0.0) + 1.0


def _is_divergence_of_probabilities(node: Any) -> bool:
    """Whether ``node`` is the difference in a ``kl_div``, ``t log t - t p``, of which p came out of a softmax and is no
    logarithm. Targets t are probabilities: their sum is 1."""
    terms = [one for one, _ in node.next_functions]
    if len(terms) != 2 or terms[0] is not None or terms[1] is None or kind_of(terms[1]) != "Mul":
        return False
    factors = [one for one, _ in terms[1].next_functions]
    softmax = made_by(terms[1])
    if softmax is None or kind_of(softmax) != "Softmax" or factors.count(None) != 1:
        return False
    targets, shape = saved_tensor(terms[1], "self" if factors[0] is None else "other"), shape_of(softmax)
    if targets is None or not targets.dim() or targets.numel() != math.prod(shape):
        return False
    axis = signed(SAVED_DIMENSION.on(softmax, 0)) % len(shape) - len(shape)
    if tuple(targets.shape) != shape and (axis != -1 or targets.shape[-1] != shape[-1]):
        return False
    sums = targets.float().sum(axis)
    return bool((targets >= 0).all()) and bool(((sums - 1.0).abs() < SUM_ROOM).all())


def _read_axis(kind: str, node: Any, graph: LossGraph) -> None:
    """Find a softmax over another axis than the one that the next operation reads as classes or as keys."""
    if kind == "Bmm":
        made = [_read_by_product(one, axis) for (one, _), axis in zip(node.next_functions, (2, 1), strict=False)]
        wrong = [one for one in made if one is not None and _is_square(shape_of(one[0])) and not _is_over(*one)]
        for softmax, _ in wrong:
            name = "causal-attention-dimension" if _is_causal(softmax) else "attention-dimension"
            graph.misuses[name] = graph.misuses.get(name, 0.0) + 1.0
        return
    scores = inputs_of_node(node)
    shape = shape_of(scores[0]) if scores else ()
    axis = min(1, len(shape) - 1) if kind in LIKELIHOODS else signed(SAVED_DIMENSION.on(node, 0)) % max(1, len(shape))
    if not shape or (
        kind == "Gather" and (len(shape) != 2 or shape_of(node) != (*shape[:axis], 1, *shape[axis + 1 :]))
    ):
        return
    found = axis_before(scores[0], axis, BEFORE_LIKELIHOOD)
    if found is None or kind_of(found[0]) not in ("LogSoftmax", "Softmax") or _is_over(*found):
        return
    if not _names_pairs(node, shape):
        graph.misuses["softmax-dimension"] = graph.misuses.get("softmax-dimension", 0.0) + 1.0


def _read_by_product(node: Any, axis: int) -> tuple[Any, int] | None:
    """The softmax behind an operand of a matrix product, with the axis of it that the product sums over."""
    found = axis_before(node, axis, BEFORE_PRODUCT) if node is not None and len(shape_of(node)) == 3 else None
    return found if found is not None and kind_of(found[0]) == "Softmax" else None


def _is_over(softmax: Any, axis: int) -> bool:
    return signed(SAVED_DIMENSION.on(softmax, 0)) % max(1, len(shape_of(softmax))) == axis


def _is_causal(softmax: Any) -> bool:
    """Whether no place gives weight to a later one."""
    weights = saved_tensor(softmax, "result")
    return weights is not None and not bool(weights.triu(1).any())


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(shape) >= 3 and shape[-1] == shape[-2] > 1


def _names_pairs(node: Any, shape: tuple[int, ...]) -> bool:
    """Whether the targets of scores [N, N] are 0 to N - 1: pairs, which a softmax over either axis compares."""
    targets = saved_tensor(node, "target")
    targets = targets if targets is not None else saved_tensor(node, "index")
    if targets is None or len(shape) != 2 or shape[0] != shape[1]:
        return False
    return torch.equal(targets.reshape(-1), torch.arange(shape[0], device=targets.device))


def _classes(node: Any) -> int:
    shape, dimension = shape_of(node), signed(SAVED_DIMENSION.on(node, 0))
    return shape[dimension] if -len(shape) <= dimension < len(shape) else 0


def _read_distance(kind: str, node: Any, graph: LossGraph) -> None:
    """Find predictions [N, 1] or [N] that broadcast to [N, N] against targets without gradients, and equal targets."""
    maker, target = made_by(node), constant_target(node)
    if target is not None and maker is not None and kind_of(maker) in MAKES_SCORES:
        graph.misuses["constant-target"] = target
    inputs = inputs_of_node(node)
    if len(inputs) != 1:
        return  # both sides are trained: the script compares pairs on purpose
    spread = shape_of(node) if kind == "Sub" else shape_of(inputs[0])
    before = inputs[0]
    while kind_of(before) == "Expand" and inputs_of_node(before):
        before = inputs_of_node(before)[0]
    shape, spread = _without_ones(shape_of(before)), _without_ones(spread)  # a batch of one: [1, N, 1] against [1, N]
    if len(spread) != 2 or spread[0] != spread[1] or spread[0] < 2 or shape not in ((spread[0], 1), (spread[0],)):
        if kind != "Sub" and (length := stretched(node)):
            graph.misuses["stretched-target"] = length
        return
    if kind == "Sub" and kind_of(before) in ("Unsqueeze", "View", "UnsafeView", "ReshapeAlias"):
        return  # the script reshaped the column on purpose
    graph.misuses["broadcast"] = float(spread[0])
    graph.misuses.update(broadcast_sides(node, shape_of(before)))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without axes of length 1 at its beginning."""
    return shape[next((at for at, length in enumerate(shape) if length != 1), len(shape)) :]


def _read_targets(kind: str, node: Any, graph: LossGraph) -> None:
    if kind in DISTANCES and (target := squared_target(node)) is not None:
        (graph.squared if kind == SQUARES else graph.distant).append(target)
    if kind in OF_BINARY and (labels := binary_labels(kind, node)) is not None:
        graph.binary.append(labels)


def _read_likelihood(node: Any, graph: LossGraph) -> None:
    targets = saved_tensor(node, "target")
    if targets is not None and not shape_of(node):  # the script may still mask a loss per label
        shape = shape_of(inputs_of_node(node)[0]) if inputs_of_node(node) else ()
        classes = shape[min(1, len(shape) - 1)] if shape else 0
        maker = made_by(node)
        scores = made_by(maker) if maker is not None and kind_of(maker) == "LogSoftmax" else None
        plain = scores is not None and kind_of(scores) in MAKES_SCORES | {"Add"}
        logarithms = saved_tensor(node, "self")
        ignored = signed(SAVED_IGNORED.on(node, -100))
        if has_unscaled_cosines(maker, logarithms):
            graph.misuses["unscaled-cosines"] = 1.0
        if classes == 2 and 0 <= ignored < classes:
            graph.misuses["ignored-class"] = float(ignored)
        graph.likelihoods.append(
            Likelihood(
                *(targets.detach(), ignored, classes, logarithms if plain else None),
                dropped=dropped_in_front(node, classes),
                weight=plain_tensor(node, "weight"),
            )
        )


def _read_attention(kind: str, node: Any, graph: LossGraph) -> None:
    shape = shape_of(node)
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
    elif mask.dim() >= 2 and mask.shape[-1] > 1 and mask.shape[-2] in (1, mask.shape[-1]):
        # A mask of padding alone is the same for all places, and hides no later one.
        open_ = mask[..., 0, 1:] if mask.shape[-2] == 1 else mask.diagonal(1, -2, -1)
        graph.attention.append(open_.float() if mask.dtype == torch.bool else open_.float().exp())
