"""Which places attention sees: keys by batch row, and whether square attention looks ahead only.

A mask of the wrong sign shows what it should hide and hides what it should show. Read from the weights that a softmax
saved for its backward, or from the mask of a fused attention, for a few queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import plain_tensor, shape_of
from steadytrain.capture.looks.token_inputs import padding_of
from steadytrain.core.torch_private import SAVED_CAUSAL

QUERIES_MAX = 8
LENGTH_MIN = 4
CLOSED = -1e4
"""An additive mask below this closes a place."""

ROWS_MIN = 2
FEATURES_MIN = 2

PLACES_BEFORE_MAX = 2
"""Places that a model puts in front of those of its input, for a class or a style."""


@dataclass(frozen=True)
class Visible:
    """One attention: the ``keys`` [groups, keys] that some query sees, and whether each place sees later ones only.

    ``ahead`` is None where queries and keys are not the same places. ``causal`` says that no place sees a later one.
    ``open_to`` is the number of keys where no mask hides any of them, else 0.
    """

    keys: Tensor | None
    ahead: bool | None
    causal: bool = False
    open_to: int = 0


@torch.no_grad()
def visible(kind: str, node: Any) -> Visible | None:
    """What the softmax or fused attention ``node`` lets through; None if it does not tell."""
    if kind in ("Softmax", "SafeSoftmax"):
        shape, weights = shape_of(node), plain_tensor(node, "result")
        if weights is None or len(shape) < 3 or weights.shape[-1] < LENGTH_MIN:
            return None
        return _read(weights, weights > 0.0 if weights.shape[-2] <= QUERIES_MAX else None)
    if SAVED_CAUSAL.on(node, False):
        return Visible(None, ahead=False, causal=True)
    mask = plain_tensor(node, "attn_mask")
    mask = mask if mask is not None else plain_tensor(node, "attn_bias")
    if mask is None or mask.dim() < 2 or mask.shape[-1] < LENGTH_MIN:
        query, key = plain_tensor(node, "query"), plain_tensor(node, "key")
        if mask is not None or query is None or key is None:
            return None
        places = int(key.shape[-2])
        return Visible(None, ahead=False if query.shape[-2] == places else None, open_to=places)
    return _read(mask, None)


def _read(values: Tensor, shown: Tensor | None) -> Visible:
    """``values`` [..., queries, keys] are weights, or a mask that is True, or not far below zero, where it shows."""
    queries = values.shape[-2]
    if shown is None:
        shown = _open(values[..., :: -(-queries // QUERIES_MAX), :] if queries > QUERIES_MAX else values)
    keys = torch.cat([shown, _open(values[..., -1:, :])], -2).any(-2)
    keys = keys.reshape(-1, keys.shape[-1])
    if queries != values.shape[-1]:
        return Visible(keys, ahead=None)
    one = _open(values.reshape(-1, queries, queries)[0])
    later = bool(one.triu(1).any())
    return Visible(keys, ahead=not bool(one.tril(-1).any()) and later, causal=not later)


def _open(values: Tensor) -> Tensor:
    if values.dtype == torch.bool:
        return values
    return values > (CLOSED if bool((values < 0.0).any()) or not bool((values > 0.0).any()) else 0.0)


@torch.no_grad()
def mask_rows(found: Sequence[Visible], given: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """Measures of the attentions of one graph; ``given`` are ids [rows, length] or frames [rows, length, features] that
    end in padding.

    ``attends-ahead`` counts the square attentions, if all of them look ahead only. ``attends-padding`` counts those
    that see padding and no other place in every padded row.
    """
    square = [one.ahead for one in found if one.ahead is not None]
    if square and all(square):
        yield "attends-ahead", float(len(square))
    keys = [one.keys for one in found if one.keys is not None]
    for one in given if keys else ():
        trailing = _trailing(one) if one.dim() > 1 and one.shape[1] >= LENGTH_MIN else None
        count = 0 if trailing is None else sum(_sees_padding(each, trailing) for each in keys)
        if count:
            yield "attends-padding", float(count)
            return


def _trailing(given: Tensor) -> Tensor | None:
    """The places [rows, length] of padding at the row ends; None if there is none. Frames are padded with zeros."""
    if given.dim() == 2 and not given.is_floating_point():
        padded = padding_of(given)
        return padded[1] if padded is not None else None
    if given.dim() != 3 or not given.is_floating_point() or given.shape[2] < FEATURES_MIN:
        return None
    return (given.detach() == 0).all(2).flip(1).cumprod(1).flip(1).bool()


def _sees_padding(keys: Tensor, trailing: Tensor) -> bool:
    rows, length = trailing.shape
    before = keys.shape[1] - length
    if not 0 <= before <= PLACES_BEFORE_MAX or len(keys) % rows:
        return False
    seen = keys.reshape(rows, -1, keys.shape[1]).any(1)[:, before:]
    trailing = trailing.to(seen.device)
    lengths = trailing.sum(1)
    filled = (lengths > 0) & (lengths < length)
    if int(filled.sum()) < ROWS_MIN:
        return False
    real, padding = (seen & ~trailing)[filled], (seen & trailing)[filled]
    return not bool(real.any()) and bool(padding.any(1).all())
