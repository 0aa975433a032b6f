"""Measures targets of a squared error that lie far from the predictions, in units of their own spread.

Prices with a mean of 250,000 are one mistake away from a model that begins at 0: an optimizer that normalises its
steps moves the last bias by its rate in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from steadytrain.capture.looks.graph_nodes import plain_tensor, shape_of

FAR_SPREADS, TARGETS_MIN = 10.0, 8


@torch.no_grad()
def far_targets(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """``far-targets`` and ``their-predictions`` are the means of the targets and predictions of a squared error, where
    they are more than ten standard deviations of the targets apart."""
    trained = [one is not None for one, _ in node.next_functions]
    if kind != "MseLoss" or shape_of(node) or trained.count(True) != 1:
        return
    names = ("self", "target") if trained[0] else ("target", "self")
    predictions, targets = (plain_tensor(node, name) for name in names)
    if predictions is None or targets is None or predictions.shape != targets.shape or targets.numel() < TARGETS_MIN:
        return
    predicted, mean = float(predictions.double().mean()), float(targets.double().mean())
    if abs(mean - predicted) > FAR_SPREADS * float(targets.double().std()):
        yield "far-targets", mean
        yield "their-predictions", predicted
