"""Tells whether attention goes over the rows of a batch in place of the places of a row.

``nn.MultiheadAttention`` and the layers built on it read [places, rows, features] unless they are made with
``batch_first=True``. Given [rows, places, features], each place of a row attends to the same place of all other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from steadytrain.capture.looks.graph_nodes import inputs_of_node, saved_tensor, shape_of

Attended = tuple[int, int]
"""The number of sequences that a self-attention reads, and their length."""


def attended(node: Any) -> Attended | None:
    """Of a fused attention with queries [sequences, heads, length, width] that reads keys of the same length."""
    query, key = saved_tensor(node, "query"), saved_tensor(node, "key")
    if query is None or key is None or query.dim() != 4 or query.shape[-2] != key.shape[-2]:
        return None
    return query.shape[0], query.shape[-2]


def predicted_shape(node: Any) -> tuple[int, ...]:
    """The shape of what a loss function was given to judge."""
    inputs = inputs_of_node(node)
    return shape_of(inputs[0]) if inputs else ()


def mixed_rows(
    attentions: Sequence[Attended], predicted: Sequence[tuple[int, ...]], samples: int
) -> Iterator[tuple[str, float]]:
    """``mixed-rows`` is the number of places that all attentions took for rows.

    There is no row unless every attention is as long as the batch has rows, reads another number of sequences, and each
    loss judges one prediction a row. A model that is given [places, rows] on purpose has the number of its rows in the
    second dimension of what it predicts, or flattens both.
    """
    if not attentions or not predicted or samples < 2:
        return
    places = attentions[0][0]
    over_rows = all(length == samples and count == places for count, length in attentions)
    one_each = all(shape and shape[0] == samples and places not in shape[1:2] for shape in predicted)
    if over_rows and one_each and places not in (1, samples):
        yield "mixed-rows", float(places)
