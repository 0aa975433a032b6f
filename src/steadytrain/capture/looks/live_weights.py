"""Finds log-probabilities that a loss multiplies with a value that carries a gradient itself: an advantage that is not
detached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steadytrain.capture.looks.graph_nodes import kind_of

PRODUCTS_MAX = 64
NODES_MAX = 96
LAYERS = frozenset({"Addmm", "Mm", "Bmm", "Linear", "Convolution", "AccumulateGrad"})
OF_PROBABILITY = frozenset({"LogSoftmax", "Log", "Gather", "Exp", "Logsumexp", "Softmax"})
"""Operations of a log-probability, of its entropy, or of a ratio of two, after the last layer."""


def live_weights(products: Iterable[Any]) -> int:
    """How many of the ``products``, nodes of the graph of a loss, weigh a log-probability by a live difference.

    The weight is a difference behind a layer, without an operation of probabilities between: returns less values.
    """
    count = 0
    for node in products:
        inputs = [one for one, _ in node.next_functions]
        if len(inputs) != 2 or None in inputs:
            continue
        one, other = (_kinds_behind(each) for each in inputs)
        for weight, weighed in ((one, other), (other, one)):
            of_value = "Sub" in weight and weight & LAYERS and not weight & OF_PROBABILITY
            if of_value and weighed & OF_PROBABILITY and weighed & LAYERS:
                count += 1
                break
    return count


def _kinds_behind(first: Any) -> frozenset[str]:
    """The operations behind ``first`` up to the layers; none if there are too many."""
    waiting, seen, kinds = [first], {first}, set()
    while waiting:
        node = waiting.pop()
        kind = kind_of(node)
        kinds.add(kind)
        for following, _ in node.next_functions if kind not in LAYERS else ():
            if following is not None and following not in seen:
                if len(seen) > NODES_MAX:
                    return frozenset()
                seen.add(following)
                waiting.append(following)
    return frozenset(kinds)
