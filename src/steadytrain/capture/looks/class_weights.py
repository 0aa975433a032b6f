"""Finds class weights that are the wrong way round: the more common a class, the heavier it counts.

``counts / counts.sum()`` as weights of a cross-entropy, or ``positives / negatives`` as ``pos_weight``, is the inverse
of what balances a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import plain_tensor

BALANCED_SHARE = 0.95
"""Entropy of the labels, as a share of that of equal counts, from which on they count as balanced."""

SEEN_SHARE = 0.8
"""Share of the weighted classes that must have been seen."""

FOLLOWS_MIN, SLOPES = 0.9, (0.3, 1.6)
"""The correlation of the logarithms of weights and counts, and the power of the counts that the weights are."""

TWO_CLASSES_RATIO_MIN, APART_MAX = 3.0, 2.0
"""Of two classes, how much more common one is, and how far apart the ratios of weights and counts may be."""

POSITIVE_SHARE_MAX, TARGETS_MIN = 0.25, 32


@torch.no_grad()
def weights_as_counts(counts: Sequence[int], weight: Tensor | None) -> Iterator[tuple[str, float]]:
    """``weights-as-counts`` is how much heavier the most common class counts than the rarest that was seen.

    Args:
        counts: of each class, over all labels so far.
        weight: of each class; None without weights.
    """
    if weight is None or weight.numel() != len(counts):
        return
    pairs = [(n, w) for n, w in zip(counts, weight.reshape(-1).tolist(), strict=True) if w > 0.0]
    seen = [(math.log(n), math.log(w)) for n, w in pairs if n > 0 and math.isfinite(w)]
    if len(seen) < 2 or len(seen) < SEEN_SHARE * len(pairs) or _is_balanced([n for n, _ in pairs if n]):
        return
    low, high = min(seen), max(seen)
    common, heavier = high[0] - low[0], high[1] - low[1]
    if len(seen) == 2:
        far = abs(common - heavier) > math.log(APART_MAX)
        if common >= math.log(TWO_CLASSES_RATIO_MIN) and not far:
            yield "weights-as-counts", math.exp(heavier)
        return
    logs = torch.tensor(seen, dtype=torch.float64).T
    logs = logs - logs.mean(1, keepdim=True)
    (squares, product), (_, others) = (logs @ logs.T).tolist()
    follows = others > 1e-6 and product > FOLLOWS_MIN * math.sqrt(squares * others)
    if follows and SLOPES[0] < product / squares < SLOPES[1] and heavier > 0.0:
        yield "weights-as-counts", math.exp(heavier)


@torch.no_grad()
def positive_weight(node: Any) -> Iterator[tuple[str, float]]:
    """``pos-weight-as-odds`` is the ``pos_weight`` of ``node``, a binary cross-entropy whose positives are rare, where
    it is near positives over negatives, in place of the inverse."""
    weight, targets = plain_tensor(node, "pos_weight"), plain_tensor(node, "target")
    if weight is None or targets is None or targets.numel() < TARGETS_MIN or weight.numel() != 1:
        return
    positive = float((targets > 0.5).float().mean())
    if 0.0 < positive < POSITIVE_SHARE_MAX:
        odds, found = positive / (1.0 - positive), float(weight)
        if odds / APART_MAX < found < odds * APART_MAX:
            yield "pos-weight-as-odds", found


def _is_balanced(counts: Sequence[int]) -> bool:
    total = sum(counts)
    entropy = -math.fsum(n / total * math.log(n / total) for n in counts)
    return len(counts) < 2 or entropy >= BALANCED_SHARE * math.log(len(counts))
