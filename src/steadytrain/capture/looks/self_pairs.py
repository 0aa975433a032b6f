"""Finds contrastive losses whose choices hold the row itself, or whose two views are equal.

The scores are the product of a batch with itself: each row finds itself among the choices, with the largest score of
all. Where it is a wrong choice, the loss cannot fall below it; where it is the right one, there is nothing to learn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.cosine_scores import PRODUCTS, SCALES
from steadytrain.capture.looks.graph_nodes import OF_SHAPE, inputs_of_node, kind_of, plain_tensor, saved_tensor

MASKS = frozenset({"MaskedFill", "FillDiagonal", "CopySlices", "Index"})
"""``CopySlices`` is a write into a part of the scores, as by ``fill_diagonal_``, ``Index`` leaves the diagonal out."""

STEPS_MAX = 8
ROWS_MIN, ROWS_MAX = 8, 4096
FIRST_SHARE_MIN = 0.9
"""Share of the rows whose own score is the largest, from which on it counts as a choice."""


@torch.no_grad()
def self_pairs(node: Any) -> Iterator[tuple[str, float]]:
    """Of a negative log-likelihood: ``own-row`` is the share of rows whose own score is the largest and is a wrong
    choice; ``equal-views`` the number of rows of two views that are equal to the last bit."""
    softmax = next(iter(inputs_of_node(node)), None)
    product, masked = _product(softmax)
    targets, logarithms = plain_tensor(node, "target"), saved_tensor(node, "self")
    if product is None or targets is None or targets.dim() != 1 or logarithms is None:
        return
    one, other = (plain_tensor(product, name) for name in PRODUCTS[kind_of(product)])
    count = len(targets)
    if one is None or other is None or not ROWS_MIN <= count <= ROWS_MAX:
        return
    if one.shape != other.T.shape or len(one) != count or not torch.equal(one, other.T):
        return
    if masked:
        if (half := _rows_of_equal_views(one)) is not None:
            yield "equal-views", float(half)
        return
    if logarithms.shape != (count, count):
        return
    places = torch.arange(count, device=targets.device)
    if torch.equal(targets, places):
        yield "equal-views", float(count)
    elif not bool((targets == places).any()):
        share = float((logarithms.argmax(1) == places).float().mean())
        if share > FIRST_SHARE_MIN and _is_each_another(one):
            yield "own-row", share


def _product(softmax: Any) -> tuple[Any, bool]:
    """The matrix product behind a log-softmax, and whether a mask lies on it; None if there is none."""
    node, masked = softmax, False
    if node is None or kind_of(node) != "LogSoftmax":
        return None, False
    for _ in range(STEPS_MAX):
        following = [one for one in inputs_of_node(node) if kind_of(one) in PRODUCTS.keys() | SCALES | OF_SHAPE | MASKS]
        if not following:
            return None, False
        node = following[0]
        masked = masked or kind_of(node) in MASKS
        if kind_of(node) == "Mm":
            return node, masked
    return None, False


def _rows_of_equal_views(rows: Tensor) -> int | None:
    """The rows of a view, where the second half of all rows is the first one again, or each is there twice in a row."""
    half = len(rows) // 2
    for first, second in ((rows[:half], rows[half:]), (rows[0::2], rows[1::2])):
        if torch.equal(first, second) and _is_each_another(first):
            return half
    return None


def _is_each_another(rows: Tensor) -> bool:
    """Whether no two neighbours are equal: of equal rows any may be the largest."""
    return not bool((rows[1:] == rows[:-1]).all(1).any())
