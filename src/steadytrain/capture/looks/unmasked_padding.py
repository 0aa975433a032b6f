"""Finds attention that gives weight to padding beside the places of a row, and means over places that count padding.

Padding is what rows end with: one id, or features that are all zero. Causal attention over rows that are padded on the
right sees no padding from the places that count, and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.attention_masks import LENGTH_MIN, Visible
from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, made_by, shape_of, signed
from steadytrain.capture.looks.padded_ends import MARGINS_MAX, PADDED_MIN, ROWS_MIN
from steadytrain.capture.looks.token_inputs import padding_of
from steadytrain.core.torch_private import SAVED_DIMENSION

LENGTHS_MIN = 3
MASKS = frozenset({"Mul", "MaskedFill", "Where", "Div"})
"""Operations that may hide places before a mean over them."""


def pooled(kind: str, node: Any) -> tuple[int, int] | None:
    """The rows and places of an output [rows, places, features] whose mean over the places ``node`` takes."""
    inputs = inputs_of_node(node) if kind == "Mean" else []
    shape = shape_of(inputs[0]) if len(inputs) == 1 else ()
    axes = SAVED_DIMENSION.on(node, ()) if len(shape) == 3 else ()
    maker = made_by(node)
    if not isinstance(axes, (tuple, list)) or [signed(one) % 3 for one in axes] != [1]:
        return None
    return None if maker is None or kind_of(maker) in MASKS else (shape[0], shape[1])


@torch.no_grad()
def unmasked_rows(
    found: Sequence[Visible], pools: Sequence[tuple[int, int]], given: Sequence[Tensor]
) -> Iterator[tuple[str, float]]:
    """``sees-padding`` and ``pools-padding`` are the share of the places that are padding, where all attentions over
    them see it in each padded row, and where a mean over the places counts it.

    Args:
        found: the attentions of one graph.
        pools: rows and places of the means over places.
        given: inputs of the model.
    """
    for values in given:
        trailing = _trailing(values)
        if trailing is None:
            continue
        rows, length = trailing.shape
        over = [one for one in found if length in (one.open_to, one.keys.shape[1] if one.keys is not None else 0)]
        if any(one.causal for one in found):
            continue
        share = float(trailing.float().mean())
        sure = trailing
        if values.dim() == 2:  # the first one may be the end of the text, where that has the id of the padding
            sure = trailing & trailing.roll(1, 1)
            sure[:, 0] = False
        if over and all(_sees(one, sure) for one in over):
            yield "sees-padding", share
        if (rows, length) in pools:
            yield "pools-padding", share
        return


def _trailing(values: Tensor) -> Tensor | None:
    """True where rows [rows, places] or [rows, places, features] end in padding; None if they do not."""
    if values.dim() < 2 or values.shape[0] < ROWS_MIN or values.shape[1] < LENGTH_MIN:
        return None
    if values.dim() == 3 and values.is_floating_point():
        empty = (values == 0).all(2)
        trailing = empty.flip(1).cumprod(1).flip(1).bool()
        if float(empty[:, 0].float().mean()) > MARGINS_MAX or int(trailing.sum()) < int(empty.sum()):
            return None
    elif values.dim() == 2 and not values.is_floating_point() and values.dtype.itemsize > 1:
        found = padding_of(values)
        if found is None:
            return None
        trailing = found[1]
    else:
        return None
    lengths = trailing.sum(1)
    enough = float(trailing.float().mean()) >= PADDED_MIN and len(set(lengths.tolist())) >= LENGTHS_MIN
    return trailing if enough and bool((lengths < values.shape[1]).any()) else None


def _sees(one: Visible, trailing: Tensor) -> bool:
    """Whether each row with padding has padding and other places that some query sees."""
    rows, length = trailing.shape
    if one.keys is None:
        return one.open_to == length
    groups = 1 if len(one.keys) == 1 else rows
    if len(one.keys) % groups:
        return False
    seen = one.keys.reshape(groups, -1, length).any(1)
    trailing = trailing.to(seen.device)
    padded = trailing.any(1)
    return bool((seen & trailing).any(1)[padded].all()) and bool((seen & ~trailing).any(1)[padded].all())
