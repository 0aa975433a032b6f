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

PAD_RUN, PAD_AT_END = 2, 0.95
"""Padding repeats at least so often at a row's end, and at least this share of it is at row ends."""


def tokens_beside(labels: Tensor, given: Iterable[Tensor], looked_up: Sequence[Tensor]) -> Tensor | None:
    """The ids [rows, length] among ``given`` that belong to the labels; None if there are none.

    Candidates are the ids that an embedding looked up (``looked_up``, which also holds positions and decoder inputs).
    If there are none (a model with one-hot inputs), the candidates are the ids that differ from the labels. The
    candidate that matches the labels best at any shift wins. Among equals that is one other than the labels themselves
    (which a model may embed beside its tokens), and then the last one (a decoder's input).
    """
    fitting = [ids for ids in given if _fits(ids, labels)]
    read = [ids for ids in fitting if any(same_ids(ids, asked) for asked in looked_up)]
    others = [ids for ids in fitting if not same_ids(ids, labels)]
    found, highest = None, -1.0
    candidates = list(reversed(read or others or fitting))
    for ids in sorted(candidates, key=lambda one: same_ids(one, labels)):  # stable: the labels themselves come last
        share = max(shares_equal(labels.reshape(ids.shape[0], -1), ids))
        if share > highest + SHARE_MIN:
            found, highest = ids, share
    return found


def place_of_labels(labels: Tensor, tokens: Tensor, given: Sequence[Tensor], looked_up: Sequence[Tensor]) -> int | None:
    """The place among ``given`` of the labels themselves, if an embedding looked them up beside their ``tokens``."""
    if same_ids(tokens, labels) or not any(same_ids(asked, labels) for asked in looked_up):
        return None
    return next((at for at, ids in enumerate(given) if same_ids(ids, labels)), None)


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


def padding_of(tokens: Tensor) -> tuple[int, Tensor] | None:
    """The padding id of ``tokens`` [rows, length] and a mask of it at the row ends; None if there is no padding."""
    ends = tokens[:, -1]
    runs = (tokens[:, -PAD_RUN:] == ends[:, None]).all(1)
    if not bool(runs.any()):
        return None
    pad = int(ends[runs].mode().values)
    padded = tokens == pad
    trailing = padded.flip(1).cumprod(1).flip(1).bool()
    lengths = trailing.sum(1)
    # A row of one repeated token does not count as padded: it may be text.
    if int(((lengths >= PAD_RUN) & (lengths < tokens.shape[1])).sum()) < 2:
        return None
    if int(trailing.sum()) < PAD_AT_END * int(padded.sum()):
        return None  # an ordinary token, such as a space, that happens to end some rows
    return pad, trailing


def _fits(ids: Tensor, labels: Tensor) -> bool:
    rows, length = ids.shape
    width = labels.numel() // max(1, rows)
    if not rows or not width or labels.numel() != rows * width or not length - SHIFTS <= width <= length:
        return False
    return bool((ids != ids[0, 0]).any())  # a constant (a mask, a token type) matches nothing


def same_ids(one: Tensor, other: Tensor) -> bool:
    """Whether both hold the same ids in the same order, in whatever shape."""
    return one.numel() == other.numel() and torch.equal(one.reshape(-1), other.reshape(-1).to(one))
