"""Attention as the script hands it to torch: queries and keys, or the scores right before their softmax.

Heads are looked at from the outside: what ``scaled_dot_product_attention`` and ``softmax`` are called with is read, and
the original is called with the very same arguments. A few queries of a few batch entries are multiplied with their keys
once more by us. Fused kernels that are called directly (flash-attn, flex_attention) hide their scores and are not seen.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

BATCH_MAX = 2
"""Entries of the batch that are looked at."""

QUERIES_MAX = 8
SCORES_MAX = 1 << 15
"""Scores that are computed once more in a call; queries become fewer where heads and keys are many."""

ON_DEVICE = ("entropy", "entropy_min", "logit_max")
"""What a look gives, in this order: mean and lowest head entropy, and the largest score."""


def look_at_queries(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor | None:
    """:data:`ON_DEVICE` of a call of ``scaled_dot_product_attention`` as float32, from a sample of its queries.

    Args:
        query: ``(batch, heads, queries, channels)`` or without ``batch``.
        key: ``(batch, heads, keys, channels)``; fewer heads where groups of query heads share them.
        mask: as torch takes it: boolean (True takes part), or added to the scores; broadcast to the scores.
        is_causal: query i sees the keys up to i, whatever the number of keys.
        scale: of the scores; 1 / sqrt(channels) if None.
    """
    if query.dim() not in (3, 4) or not query.numel() or not key.numel():
        return None
    if mask is not None:
        mask = mask.expand(*query.shape[:-1], key.shape[-2])
    if query.dim() == 3:
        query, key, mask = query[None], key[None], mask[None] if mask is not None else None
    batch, heads, length, channels = query.shape
    keys = key.shape[-2]
    entries = slice(None, None, -(-batch // BATCH_MAX))
    queries = _spread(length, SCORES_MAX // (min(batch, BATCH_MAX) * heads * keys))
    q, k = query[entries, :, queries].to(torch.float32), key[entries].to(torch.float32)
    if k.shape[1] != heads:
        k = k.repeat_interleave(heads // k.shape[1], dim=1)
    scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(channels) if scale is None else scale)
    if is_causal:
        position = torch.arange(length, device=scores.device)[queries, None]
        scores.masked_fill_(torch.arange(keys, device=scores.device) > position, -math.inf)
    if mask is not None:
        mask = mask[entries, :, queries]
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return _of_scores(scores)


def look_at_scores(scores: Tensor) -> Tensor | None:
    """The same from the input of a softmax over its last dimension: ``(batch, heads, queries, keys)``.

    Of three dimensions the first is both, and a few of these stand for the heads.
    """
    if scores.dim() not in (3, 4) or not scores.numel():
        return None
    if scores.dim() == 3:
        scores = scores[None]
    scores = scores[:: -(-scores.shape[0] // BATCH_MAX)]
    keys = scores.shape[-1]
    scores = scores[:, :: -(-scores.shape[0] * scores.shape[1] * keys // SCORES_MAX)]
    queries = _spread(scores.shape[2], SCORES_MAX // (scores.shape[0] * scores.shape[1] * keys))
    return _of_scores(scores[:, :, queries].to(torch.float32))


def is_softmax_of_scores(values: Tensor, dimension: Any, module_class: str) -> bool:
    """Whether a softmax is one of attention: over the last of four dimensions, or of three inside an attention module.

    A router's or a classifier's softmax has fewer. One head of its own (``Head``) has three, as many keys as queries.
    """
    if dimension not in (-1, values.dim() - 1) or not values.is_floating_point() or values.shape[-1] < 2:
        return False
    if values.dim() != 3:
        return values.dim() == 4
    name = module_class.lower()
    square = values.shape[-1] == values.shape[-2]
    return "attention" in name or (square and ("head" in name or "attn" in name))


def _spread(length: int, limit: int) -> slice:
    """Up to ``limit`` positions, evenly spread, and the last one is among them: it sees the most keys."""
    step = -(-length // max(1, min(limit, QUERIES_MAX)))
    return slice((length - 1) % step, None, step)


def _of_scores(scores: Tensor) -> Tensor:
    """``(batch, heads, queries, keys)``, hidden keys at -inf or so far down that their share is zero."""
    log_share = torch.log_softmax(scores, dim=-1)
    share = log_share.exp()
    entropy = -torch.where(share > 0, share * log_share, 0.0).sum(-1)
    blind = torch.isneginf(scores).all(-1)  # a query that sees no key at all has no entropy
    of_head = torch.where(blind, 0.0, entropy).sum((0, 2)) / (~blind).sum((0, 2))
    lowest = torch.where(of_head.isnan(), math.inf, of_head).min()
    return torch.stack([of_head.nanmean(), lowest, scores.max()])
