"""Tells whether attention or a recurrent layer goes over the rows of a batch in place of the places of a row.

``nn.MultiheadAttention``, ``nn.LSTM`` and the layers built on them read [places, rows, features] unless they are made
with ``batch_first=True``. Given [rows, places, features], each place of a row is read with the same place of all other
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from steadytrain.capture.looks.graph_nodes import inputs_of_node, saved_tensor, shape_of

Attended = tuple[int, int]
"""The number of sequences that a self-attention, or a recurrent layer, reads, and their length."""


@dataclass(frozen=True)
class Batch:
    """What is known of the rows of a batch: ``samples`` by its first axis, ``drawn`` those that the one loader of the
    step drew (0 if unknown), and the second axes of what the model was given."""

    samples: int
    drawn: int = 0
    second_axes: frozenset[int] = frozenset()

    @property
    def rows(self) -> int:
        """The number of rows, as it was drawn where that is known."""
        return self.drawn or self.samples


def attended(kind: str, node: Any) -> Attended | None:
    """Of an attention over weights [sequences, heads, length, length], fused or not."""
    if kind in ("Softmax", "SafeSoftmax"):
        shape = shape_of(node)
        return (shape[0], shape[-1]) if len(shape) == 4 and shape[-1] == shape[-2] > 1 else None
    query, key = saved_tensor(node, "query"), saved_tensor(node, "key")
    if query is None or key is None or query.dim() != 4 or query.shape[-2] != key.shape[-2]:
        return None
    return query.shape[0], query.shape[-2]


def predicted_shape(node: Any) -> tuple[int, ...]:
    """The shape of what a loss function was given to judge."""
    inputs = inputs_of_node(node)
    return shape_of(inputs[0]) if inputs else ()


def mixed_rows(
    attentions: Sequence[Attended],
    recurrent: Sequence[Attended],
    predicted: Sequence[tuple[int, ...]],
    batch: Batch,
) -> Iterator[tuple[str, float]]:
    """``mixed-rows`` is the number of places that all attentions and recurrent layers took for rows.

    There is no row unless every one is as long as the batch has rows, reads another number of sequences, and each loss
    judges one prediction a row. A model that is given [places, rows] on purpose has the number of its rows in the
    second dimension of what it predicts, or flattens both. Where the loader has told how many rows it drew, recurrent
    layers that are that long step over the rows whatever the loss judges.
    """
    read = [*attentions, *recurrent]
    if not read or max(batch.samples, batch.drawn) < 2:
        return
    places = read[0][0]
    rows = batch.rows
    if places in (1, rows) or not all(length == rows and count == places for count, length in read):
        return
    if places % rows == 0 and places not in batch.second_axes:
        return  # windows, or axes, of each row
    one_each = bool(predicted) and all(shape and shape[0] == rows and places not in shape[1:2] for shape in predicted)
    if one_each or (batch.drawn and recurrent and not attentions):
        yield "mixed-rows", float(places)
