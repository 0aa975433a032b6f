"""Tells whether a model reads its answer at the last place of rows that end in padding.

``outputs[:, -1]`` of a recurrent layer is its state after all places, those of the padding too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import signed
from steadytrain.core.torch_private import SAVED_DIMENSION, SAVED_INDEX, SAVED_SIZES

SHARE_MIN = 0.5
LENGTHS_MIN = 3
PADDED_MIN = 0.1
MARGINS_MAX = 0.1
ROWS_MIN, PLACES_MIN = 4, 4


def last_place(kind: str, node: Any) -> tuple[int, int] | None:
    """The rows and places of an output [rows, places, features] of which ``node`` takes the last place."""
    sizes = tuple(SAVED_SIZES.on(node) or ()) if kind == "Select" else ()
    if len(sizes) != 3 or signed(SAVED_DIMENSION.on(node, 0)) % 3 != 1:
        return None
    at = signed(int(SAVED_INDEX.on(node, 0)))
    return (int(sizes[0]), int(sizes[1])) if at in (-1, int(sizes[1]) - 1) else None


@torch.no_grad()
def padded_end_rows(ends: Sequence[tuple[int, int]], given: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """``padded-end`` is the share of rows that end in padding, where the last place of all rows is read.

    Padding is what at least half of the rows end with twice or more: one id, or features that are all zero. Rows must
    have three lengths or more, and a tenth of the batch must be padding: values that only end alike are none. Where
    more than a tenth of the rows also begin so, it is part of the data, as the margins of a picture that is read line
    by line.

    Args:
        ends: rows and places of outputs whose last place is read.
        given: inputs of the model.
    """
    for values in given:
        read = [places for rows, places in ends if values.dim() >= 2 and rows == len(values)]
        if not read or max(read) > values.shape[1] or not _is_sequence(values):
            continue
        values = values[:, : max(read)]  # a packed sequence is as long as its longest row
        is_padding = _is_padding(values)
        if float(is_padding[:, 0].float().mean()) > MARGINS_MAX:
            continue
        lengths = _lengths(is_padding)
        padded = values.shape[1] - lengths
        share = float((padded >= 2).float().mean())
        some = float(padded.sum()) / values.shape[0] / values.shape[1]
        if share >= SHARE_MIN and len(set(lengths.tolist())) >= LENGTHS_MIN and some >= PADDED_MIN:
            yield "padded-end", share
            return


def _is_sequence(values: Tensor) -> bool:
    """Whether ``values`` are ids [rows, places], or features [rows, places, width]."""
    enough = values.dim() >= 2 and values.shape[0] >= ROWS_MIN and values.shape[1] >= PLACES_MIN
    ids = values.dim() == 2 and not values.is_floating_point() and values.dtype != torch.bool
    return enough and (ids or (values.dim() == 3 and values.is_floating_point()))


def _is_padding(values: Tensor) -> Tensor:
    """Where features are all zero, or ids are what most rows end with."""
    return (values == 0).all(2) if values.dim() == 3 else values == values[:, -1].mode().values


def _lengths(is_padding: Tensor) -> Tensor:
    """Places of each row up to the padding at its end; all of a row of padding alone."""
    run = is_padding.flip(1).int().cumprod(1).sum(1)
    width = is_padding.shape[1]
    return width - torch.where(run == width, 0, run)
