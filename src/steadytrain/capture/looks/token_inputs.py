"""Finds the token ids that belong to the labels among a model's inputs, and avoids the labels themselves.

Many models take both (``model(tokens, targets)``) and return the loss. Labels compared with themselves always match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

SHIFTS = 4
"""The tested shifts between labels and tokens are 0 to this, exclusive. Labels may be shorter by as much."""

SHARE_MIN = 0.05
"""Shares that differ by less count as equal, because some tokens match by chance."""


def tokens_beside(labels: Tensor, given: Iterable[Tensor], looked_up: Sequence[Tensor]) -> Tensor | None:
    """The ids [rows, length] among ``given`` that belong to the labels; None if there are none.

    Candidates are the ids that an embedding looked up (``looked_up``, which also holds positions and decoder inputs).
    If there are none (a model with one-hot inputs), the candidates are the ids that differ from the labels. The
    candidate that matches the labels best at any shift wins; among equals the last one wins (a decoder's input).
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
    """The share of labels [rows, width] that equal the token ``shift`` places later, for each shift.

    ``used`` masks the labels that count; by default all count.
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
    return bool((ids != ids[0, 0]).any())  # a constant (a mask, a token type) matches nothing


def _same(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and torch.equal(one.reshape(-1), other.reshape(-1).to(one))
