"""Which of the ids that a model is given stand beside the labels: the tokens that it reads, not the labels themselves.

Many models are given both (``model(tokens, targets)``) and return the loss. Compared with themselves, labels always
stand where their inputs do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

SHIFTS = 4
"""Labels may stand so many places away from their tokens, less one, and be as many fewer."""

SHARE_MIN = 0.05
"""Matches of a share that differs by less are the same: of other tokens a few are equal by chance."""


def tokens_beside(labels: Tensor, given: Iterable[Tensor], looked_up: Sequence[Tensor]) -> Tensor | None:
    """The ids [rows, length] among ``given`` that stand beside the labels; None where none do.

    What a table was asked for is read by the model (``looked_up``: positions and a decoder's inputs as well). Where
    none of it was, as in a model of one-hot vectors, it is what is not the labels themselves. Of several it is that
    in which the labels stand, at whatever shift, and of equals the last (that of a decoder).
    """
    fitting = [ids for ids in given if _fits(ids, labels)]
    read = [ids for ids in fitting if any(_same(ids, asked) for asked in looked_up)]
    others = [ids for ids in fitting if not _same(ids, labels)]
    found, highest = None, -1.0
    for ids in reversed(read or others or fitting):
        share = max(shares_equal(labels.reshape(ids.shape[0], -1), ids))
        if share > highest + SHARE_MIN:
            found, highest = ids, share
    return found


def shares_equal(labels: Tensor, tokens: Tensor, used: Tensor | None = None) -> list[float]:
    """The share of the labels [rows, width] that are the token ``shift`` places later, for each shift.

    ``used`` are the labels that count, by default all of them.
    """
    shares = []
    for shift in range(SHIFTS):
        span = min(labels.shape[1], tokens.shape[1] - shift)
        same = labels[:, :span] == tokens[:, shift : shift + span]
        counted = same if used is None else same[used[:, :span]]
        shares.append(float(counted.float().mean()) if span > 0 and counted.numel() else 0.0)
    return shares


def _fits(ids: Tensor, labels: Tensor) -> bool:
    rows, length = ids.shape
    width = labels.numel() // max(1, rows)
    if not rows or not width or labels.numel() != rows * width or not length - SHIFTS <= width <= length:
        return False
    return bool((ids != ids[0, 0]).any())  # one number everywhere (a mask, a kind of token) stands beside nothing


def _same(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and torch.equal(one.reshape(-1), other.reshape(-1).to(one))
