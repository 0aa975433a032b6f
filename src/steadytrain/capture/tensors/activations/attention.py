"""Measures attention from the arguments of torch's functions: queries and keys, or the scores before their softmax.

We read the arguments of ``scaled_dot_product_attention`` and ``softmax``, and call the original with the same
arguments. For a few queries of a few batch entries we recompute the scores. Fused kernels that the script calls
directly (flash-attn, flex_attention) hide their scores, so they are not measured.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

BATCH_MAX = 2
"""Batch entries that are measured."""

QUERIES_MAX = 8
SCORES_MAX = 1 << 15
"""Scores recomputed per call; with many heads and keys, fewer queries are sampled."""

ON_DEVICE = ("entropy", "entropy_min", "logit_max")
"""The measurements, in this order: mean and lowest head entropy, and the largest score."""


def look_at_queries(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor | None:
    """:data:`ON_DEVICE` of one call of ``scaled_dot_product_attention``, as float32, from a sample of its queries.

    Args:
        query: ``(batch, heads, queries, channels)`` or without ``batch``.
        key: ``(batch, heads, keys, channels)``; fewer heads if groups of query heads share them.
        mask: as for torch: boolean (True takes part), or added to the scores; broadcast to the scores.
        is_causal: query i sees the keys up to i, for any number of keys.
        scale: the factor of the scores; 1 / sqrt(channels) if None.
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

    With three dimensions, the first one combines batch and heads, and a sample of its entries serves as heads.
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
    """Whether a softmax belongs to attention: over the last of four dimensions, or of three inside an attention module.

    The softmax of a router or classifier has fewer dimensions. A module for one head (``Head``) has three, with as many
    keys as queries.
    """
    if dimension not in (-1, values.dim() - 1) or not values.is_floating_point() or values.shape[-1] < 2:
        return False
    if values.dim() != 3:
        return values.dim() == 4
    name = module_class.lower()
    square = values.shape[-1] == values.shape[-2]
    return "attention" in name or (square and ("head" in name or "attn" in name))


def _spread(length: int, limit: int) -> slice:
    """Up to ``limit`` evenly spread positions, including the last one, which sees the most keys."""
    step = -(-length // max(1, min(limit, QUERIES_MAX)))
    return slice((length - 1) % step, None, step)


def _of_scores(scores: Tensor) -> Tensor:
    """The measurements of scores ``(batch, heads, queries, keys)``; masked keys are at -inf or have weight zero."""
    log_share = torch.log_softmax(scores, dim=-1)
    share = log_share.exp()
    entropy = -torch.where(share > 0, share * log_share, 0.0).sum(-1)
    blind = torch.isneginf(scores).all(-1)  # a query that sees no key has no entropy
    of_head = torch.where(blind, 0.0, entropy).sum((0, 2)) / (~blind).sum((0, 2))
    lowest = torch.where(of_head.isnan(), math.inf, of_head).min()
    return torch.stack([of_head.nanmean(), lowest, scores.max()])
