"""Finds a softmax over cosines that no temperature scales: its scores lie between -1 and 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import OF_SHAPE, inputs_of_node, kind_of, plain_tensor

PRODUCTS = {"Mm": ("self", "mat2"), "Bmm": ("self", "mat2")}
SCALES = frozenset({"Mul", "Div"})
STEPS_MAX = 8

CHOICES_MIN, CHOICES_MAX, ROWS_MAX = 8, 4096, 64
LENGTHS_SPREAD_MAX = 1e-3
"""Rows whose lengths differ by less, as a share of their mean, are normalised."""

SCALE_MAX = 1.5
"""The factor on cosines up to which they count as unscaled. Temperatures of 0.5 and less give 2 and more;
a learned one begins at 14 (CLIP)."""


@torch.no_grad()
def has_unscaled_cosines(softmax: Any, logarithms: Tensor | None) -> bool:
    """Whether ``logarithms`` [rows, choices], the result of the node ``softmax``, is the log-softmax of cosines.

    The factor is measured on the values: between the product of the two normalised matrices and the logarithms.
    """
    product = _product(softmax)
    if product is None or logarithms is None or logarithms.dim() != 2:
        return False
    one, other = (plain_tensor(product, name) for name in PRODUCTS[kind_of(product)])
    if one is None or other is None or one.dim() != 2 or not one.is_floating_point():
        return False
    if not CHOICES_MIN <= other.shape[1] <= CHOICES_MAX or logarithms.shape != (one.shape[0], other.shape[1]):
        return False
    lengths = one.float().norm(dim=1), other.float().norm(dim=0)
    if any(float(each.std()) > LENGTHS_SPREAD_MAX * float(each.mean()) for each in lengths if len(each) > 1):
        return False
    cosines = (one[:ROWS_MAX].float() @ other.float()) / (lengths[0].mean() * lengths[1].mean())
    centred = cosines - cosines.mean(1, keepdim=True)
    found = logarithms[:ROWS_MAX].float()
    found = found - found.mean(1, keepdim=True)
    factor = float((centred * found).sum()) / max(float((centred * centred).sum()), 1e-12)
    explained = factor * float((centred * found).sum()) / max(float((found * found).sum()), 1e-12)
    return 0.0 < factor <= SCALE_MAX and explained > 1.0 - LENGTHS_SPREAD_MAX


def _product(softmax: Any) -> Any:
    """The matrix product behind a log-softmax, past operations of shape and factors; None if there is none."""
    node = softmax
    if node is None or kind_of(node) != "LogSoftmax":
        return None
    for _ in range(STEPS_MAX):
        following = [one for one in inputs_of_node(node) if kind_of(one) in PRODUCTS.keys() | SCALES | OF_SHAPE]
        if not following:
            return None
        node = following[0]
        if kind_of(node) in PRODUCTS:
            return node
    return None
