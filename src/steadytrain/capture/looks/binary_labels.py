"""Reads the labels of a binary cross entropy: what a guess costs that knows how often each label occurs, and no input.

One label a row, or several (a column for each). Targets other than 0 and 1 (soft labels, pixels) and losses with
weights are not read: their guess costs something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from steadytrain.capture.looks.graph_nodes import plain_tensor, saved_tensor
from steadytrain.capture.looks.label_entropy import label_entropy

OF_LOGITS, OF_PROBABILITIES = "BinaryCrossEntropyWithLogits", "BinaryCrossEntropy"
KINDS = frozenset({OF_LOGITS, OF_PROBABILITIES})
CLASSES = 2.0
LABELS_MIN, ELEMENTS_MAX, COLUMNS_MAX = 8, 1 << 20, 256
ROWS_MIN = 64
"""Rows seen, below which the entropy is not reported."""


@dataclass(frozen=True)
class Binary:
    """One binary cross entropy in a graph: its scores and targets, of one shape."""

    scores: Tensor
    targets: Tensor
    of_logits: bool


def binary_labels(kind: str, node: Any) -> Binary | None:
    """What a node of :data:`KINDS` saved; None with weights, or if it cannot be read."""
    scores, targets = plain_tensor(node, "self"), plain_tensor(node, "target")
    weights = [saved_tensor(node, name) for name in ("weight", "pos_weight")]
    if scores is None or targets is None or scores.shape != targets.shape or any(one is not None for one in weights):
        return None
    return Binary(scores, targets, kind == OF_LOGITS)


class BinaryLabels:
    """Serves one stream: counts the labels of each column over the looks."""

    def __init__(self) -> None:
        self._positives: list[float] = []
        self._rows = 0

    @torch.no_grad()
    def rows(self, found: Sequence[Binary]) -> Iterator[tuple[str, float]]:
        """``classes``, ``label-entropy`` and ``likelihood`` as of a likelihood of two classes (``label_counts``), of a
        graph with one such loss. The entropy is the mean over the columns."""
        if len(found) != 1 or not LABELS_MIN <= found[0].targets.numel() <= ELEMENTS_MAX:
            return
        targets = found[0].targets
        columns = targets.shape[-1] if targets.dim() > 1 and targets.shape[-1] <= COLUMNS_MAX else 1
        labels = targets.reshape(-1, columns).double()
        if not bool(((labels == 0.0) | (labels == 1.0)).all()):
            return
        positives = labels.sum(0).tolist()
        if len(positives) != len(self._positives):
            self._positives, self._rows = [0.0] * columns, 0
        self._positives = [before + now for before, now in zip(self._positives, positives, strict=True)]
        self._rows += len(labels)
        if not 0.0 < sum(self._positives) < self._rows * columns:
            return
        yield "classes", CLASSES
        yield "likelihood", _cost(found[0])
        if self._rows >= ROWS_MIN:
            yield "label-entropy", math.fsum(map(self._entropy, self._positives)) / columns

    def _entropy(self, positives: float) -> float:
        return label_entropy((positives, self._rows - positives))


def _cost(one: Binary) -> float:
    scores, targets = one.scores.float(), one.targets.float()
    if one.of_logits:
        return float(functional.binary_cross_entropy_with_logits(scores, targets))
    # torch's own function refuses to run under autocast. Its logarithms end at -100, too.
    costs = targets * scores.log().clamp(min=-100.0) + (1.0 - targets) * (1.0 - scores).log().clamp(min=-100.0)
    return -float(costs.mean())
