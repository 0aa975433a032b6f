"""Finds a softmax of attention over a dimension of size 1: every weight is 1, and no gradient passes.

``scores = nn.Linear(width, 1)(h)`` of [rows, places, 1] has one number for each place. The softmax over the last
dimension takes each place for itself; meant is the one over the places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steadytrain.capture.looks.graph_nodes import kind_of, made_by, shape_of, signed
from steadytrain.core.torch_private import SAVED_DIMENSION

SCORES = frozenset({"Addmm", "Mm", "Linear", "UnsafeView"})


def weights_of_one(kind: str, node: Any) -> Iterator[tuple[str, float]]:
    """``weights-of-one`` is how many places have a softmax of their own. A layer of one unit gave their scores."""
    shape = shape_of(node) if kind == "Softmax" else ()
    if len(shape) < 3 or shape[-1] != 1 or signed(SAVED_DIMENSION.on(node, 0)) not in (-1, len(shape) - 1):
        return
    maker = made_by(node)
    if maker is not None and kind_of(maker) in SCORES and shape_of(maker)[-1:] == (1,) and shape[-2] > 1:
        yield "weights-of-one", float(shape[-2])
