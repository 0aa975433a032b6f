"""Finds a loss that weights a row of values by a column: [N] times [N, 1] is [N, N], each value times every weight.

The mean of such a table is the product of two means: a weight of a row has no effect on that row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, plain_tensor, shape_of

REDUCTIONS = frozenset({"Mean", "Sum"})
BETWEEN = frozenset({"Neg", "Minimum", "Maximum"})
RESHAPES = frozenset({"Unsqueeze", "View", "UnsafeView", "ReshapeAlias", "Expand"})
STEPS_MAX, ROWS_MIN = 4, 4


def outer_products(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """``outer-product`` is N, where the mean or sum of [N] times [N, 1] is taken and one of both has no gradient."""
    if kind not in REDUCTIONS or shape_of(node):
        return
    product = node
    for _ in range(STEPS_MAX):
        following = inputs_of_node(product)
        if not following or kind_of(following[0]) not in BETWEEN | {"Mul"}:
            return
        product = following[0]
        if kind_of(product) == "Mul":
            break
    rows = _rows(product) if kind_of(product) == "Mul" else 0
    if rows >= ROWS_MIN:
        yield "outer-product", float(rows)


def _rows(product: Any) -> int:
    """N, where ``product`` is a table of a column and a row; else 0."""
    sides, shape = [one for one, _ in product.next_functions], shape_of(product)
    if len(shape) != 2 or shape[0] != shape[1] or len(sides) != 2 or sides.count(None) != 1:
        return 0
    trained = sides[0] if sides[0] is not None else sides[1]
    other = plain_tensor(product, "other" if sides[0] is not None else "self")
    if other is None or kind_of(trained) in RESHAPES:  # a column that was made on purpose
        return 0
    return shape[0] if {shape_of(trained), tuple(other.shape)} == {(shape[0],), (shape[0], 1)} else 0
