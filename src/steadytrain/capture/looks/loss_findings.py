"""What single nodes in the graph of a loss show about how it is made, by name: each rule has a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steadytrain.capture.looks.batch_totals import batch_totals
from steadytrain.capture.looks.class_weights import positive_weight
from steadytrain.capture.looks.far_targets import far_targets
from steadytrain.capture.looks.many_hot_targets import many_hot_targets
from steadytrain.capture.looks.outer_products import outer_products
from steadytrain.capture.looks.self_pairs import self_pairs
from steadytrain.capture.looks.unreachable_targets import unreachable_targets
from steadytrain.capture.looks.weights_of_one import weights_of_one


def loss_findings(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """The measures of ``node``, an operation ``kind`` between a loss and its parameters."""
    yield from unreachable_targets(kind, node)
    yield from far_targets(kind, node)
    yield from positive_weight(node) if kind == "BinaryCrossEntropyWithLogits" else ()
    yield from self_pairs(node) if kind == "NllLoss" else ()
    yield from many_hot_targets(kind, node)
    yield from outer_products(kind, node)
    yield from batch_totals(kind, node)
    yield from weights_of_one(kind, node)
