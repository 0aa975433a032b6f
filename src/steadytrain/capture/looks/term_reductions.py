"""How the terms of a loss were reduced, read from the graph: a divergence that is summed beside an average.

An average over the pixels of a row and a sum over its latent values do not go together: their balance then depends on
the sizes, and not on the weight that the script gives them. ``survey.loss_reductions`` reads the same from the calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, plain_tensor, shape_of
from steadytrain.core.torch_private import SAVED_REDUCTION

REDUCED_LOSSES = frozenset({"MseLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "L1Loss", "SmoothL1Loss"})
MEAN, SUM = 1, 2
STEPS_MAX, NODES_MAX = 16, 32
TIMES_MIN = 16.0
"""The average is over this many times as many elements as the sum has rows: pixels or tokens, and not some heads."""


@dataclass(frozen=True)
class Reduced:
    """A mean over ``count`` elements, each the sum of ``summed``; ``inner`` is the node that was reduced."""

    count: float
    summed: float
    weight: float
    inner: Any


def outweighed(terms: Sequence[tuple[Any, float]], factor: Any) -> tuple[int, float] | None:
    """The number of a term that is a divergence summed over its row, and how much more it weighs than beside a sum.

    None if no other term is an average over all elements of its rows. ``factor`` gives what a node multiplies by.
    """
    found = [_reduced(node, weight, factor) for node, weight in terms]
    averaged = [one for one in found if one is not None and one.summed == 1 and one.count > 1 and one.weight]
    for number, one in enumerate(found, 1):
        if one is None or one.summed < 2 or one.count < 2 or not _is_divergence(one.inner):
            continue
        for other in averaged:
            times = other.count / one.count
            if times >= TIMES_MIN:
                return number, abs(one.weight / other.weight) * times
    return None


def _reduced(node: Any, weight: float, factor: Any) -> Reduced | None:
    count, summed = 1.0, 1.0
    for _ in range(STEPS_MAX):
        kind, inputs = kind_of(node), inputs_of_node(node)
        if kind in REDUCED_LOSSES:
            given = plain_tensor(node, "self")
            if given is None:
                return None
            mean = SAVED_REDUCTION.on(node, 0)
            count *= given.numel() if mean == MEAN else 1
            summed *= given.numel() if mean == SUM else 1
            break
        number = factor(kind, node) if len(inputs) == 1 else None
        if kind in ("Mean", "Sum") and inputs:
            each = math.prod(shape_of(inputs[0])) / max(1, math.prod(shape_of(node)))
            if kind == "Mean" and summed > 1:
                return None
            count, summed = (count * each, summed) if kind == "Mean" else (count, summed * each)
        elif number is not None and (count > 1 or summed > 1 or number == 1.0 or not shape_of(node)):
            weight *= number
        else:
            break
        node = inputs[0]
    rows = round(1.0 / abs(weight)) if weight else 0
    if count == 1 and rows > 1 and math.isclose(rows * abs(weight), 1.0, rel_tol=1e-4) and summed % rows == 0:
        count, summed, weight = float(rows), summed / rows, math.copysign(1.0, weight)  # `loss.sum() / rows`
    return Reduced(count, summed, weight, node)


def _is_divergence(node: Any) -> bool:
    """Whether values and their exponentials were added up, as in the divergence of two normal distributions."""
    waiting, kinds = [node], set[str]()
    for _ in range(NODES_MAX):
        if not waiting:
            break
        one = waiting.pop(0)
        kinds.add(kind_of(one))
        waiting += inputs_of_node(one)
    return "Exp" in kinds and bool(kinds & {"Add", "Sub"}) and bool(kinds & {"Pow", "Mul", "Square"})
