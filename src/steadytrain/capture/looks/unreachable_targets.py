"""Finds targets outside of what the operation that made the predictions can give: a sigmoid gives no -1.

Only losses that take in every target are read. Where a mask or weight may follow, a target that is out of reach may be
a code for "none".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import OF_SHAPE, inputs_of_node, kind_of, made_by, plain_tensor, shape_of

ENDS = {
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Relu": (0.0, math.inf),
    "Softplus": (0.0, math.inf),
}
"""Operations, and the least and the largest value that they give."""

PROBABILITIES = frozenset({"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"})
DISTANCES = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"})
DIFFERENCES = frozenset({"Pow", "Abs"})
MEANS = frozenset({"Mean", "Sum"})
SAME_ORDER = frozenset({"View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "ToCopy", "Clone", "Alias"})

TARGETS_MIN, TARGETS_MAX = 8, 1 << 16

OUTSIDE_SHARE_MIN = 0.01
"""Share of the targets out of reach from which on they are reported."""

FLOOR_SHARE_MIN = 0.01
"""Least share of the targets' variance that the nearest values in reach leave over: less is noise at an end."""

BEYOND_WIDTHS, BEYOND_SPREADS, BEYOND_PROBABILITY = 0.25, 0.01, 0.5
"""How far outside a target counts: as a share of the distance between two ends, of the targets' standard deviation, and
as a probability. Smoothed labels go a little beyond 0 and 1."""


@torch.no_grad()
def unreachable_targets(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """``unreachable-OPERATION`` is the share of the targets outside of what that operation gives, and
    ``unreachable-probability`` that of a binary cross-entropy outside of 0 to 1."""
    if shape_of(node):
        return  # the script may still mask a loss per element
    if kind in PROBABILITIES:
        targets = plain_tensor(node, "target")
        if targets is not None and plain_tensor(node, "weight") is None:
            yield from _outside("probability", targets, (0.0, 1.0), BEYOND_PROBABILITY)
        return
    maker, targets = _squared(node) if kind in DISTANCES else _by_hand(node) if kind in MEANS else (None, None)
    made = kind_of(maker) if maker is not None else ""
    if targets is None or made not in ENDS:
        return
    low, high = ENDS[made]
    yield from _outside(made.lower(), targets, (low, high), BEYOND_WIDTHS * (high - low) if math.isfinite(high) else 0)


def _outside(name: str, targets: Tensor, ends: tuple[float, float], margin: float) -> Iterator[tuple[str, float]]:
    if targets.numel() < TARGETS_MIN or targets.is_complex():
        return
    values = targets.reshape(-1)
    values = values[:: -(-values.numel() // TARGETS_MAX)].float()
    nearest = values.clamp(*ends)
    beyond = (values - nearest).abs()
    spread = float(values.std())
    share = float((beyond > max(margin, BEYOND_SPREADS * spread)).float().mean())
    left = float(beyond.square().mean())
    if share > OUTSIDE_SHARE_MIN and left > FLOOR_SHARE_MIN * spread**2:
        yield f"unreachable-{name}", share


def _squared(node: Any) -> tuple[Any, Tensor | None]:
    """What made the prediction of a distance, and its targets, which have no gradient."""
    trained = [one is not None for one, _ in node.next_functions]
    if trained.count(True) != 1:
        return None, None
    return made_by(node), plain_tensor(node, "target" if trained[0] else "self")


def _by_hand(node: Any) -> tuple[Any, Tensor | None]:
    """The same of the mean of a power or magnitude of a difference, from the values of both."""
    power = _behind(node, OF_SHAPE - {"Index", "Slice", "Select", "Narrow", "Expand"})
    if power is None or kind_of(power) not in DIFFERENCES:
        return None, None
    difference = next(iter(inputs_of_node(power)), None)
    if difference is None or kind_of(difference) != "Sub":
        return None, None
    trained = [one is not None for one, _ in difference.next_functions]
    apart, maker = plain_tensor(power, "self"), _behind(difference, SAME_ORDER)
    predicted = plain_tensor(maker, "self" if kind_of(maker) == "Softplus" else "result") if maker is not None else None
    if apart is None or predicted is None or trained.count(True) != 1 or predicted.numel() != apart.numel():
        return None, None
    predicted = torch.nn.functional.softplus(predicted) if kind_of(maker) == "Softplus" else predicted
    predicted = predicted.reshape(apart.shape)
    return maker, predicted - apart if trained[0] else predicted + apart


def _behind(node: Any, past: frozenset[str]) -> Any:
    """The operation that made the one input of ``node``, past those in ``past``; None if there is none."""
    following = inputs_of_node(node)
    while len(following) == 1 and kind_of(following[0]) in past:
        following = inputs_of_node(following[0])
    return following[0] if len(following) == 1 else None
