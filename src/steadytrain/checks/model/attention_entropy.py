"""How widely attention is spread before training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.checks.subject.short_training import few_rows
from steadytrain.core.plugins import threshold

CALLS_MAX = 256
POSITIONS_MIN = 8


@final
@dataclass(frozen=True)
class AttentionEntropy(Check):
    """Untrained attention is spread over many positions.

    Means:
        The check divides the entropy of the last position's attention weights by that of uniform weights. In an
        untrained model the ratio is near 1. Weights that are sharp from the start come from queries and keys that are
        too large or not scaled; their softmax is saturated and learns slowly.

    Causes:
        - no factor 1 / sqrt(d), or a scale for normalised queries without the norm
        - an initialisation of queries and keys that is too large
        - no fault: a model that is already trained

    Next:
        1. Print the standard deviation of the attention logits: it should be below 1.
        2. Check the scale that reaches `scaled_dot_product_attention`.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "Zhai et al. 2023 (entropy collapse); transformers#45676 (scaling of 1)"

    warn_share: float = threshold(0.5, "of the entropy of uniform weights; lower warns")
    fail_share: float = threshold(0.1, "of the entropy of uniform weights, in an untrained model; lower fails")

    def inspect(self, subject: Subject) -> Outcome:
        batch = few_rows(subject.batches[0], 4)
        with torch.no_grad(), _Attention() as watch:
            subject.look(batch)
        if not watch.shares:
            return not_run("no call of scaled_dot_product_attention over enough positions was seen")
        lowest = min(watch.shares)
        numbers: dict[str, Any] = {"share_of_even": watch.shares}
        at = watch.shares.index(lowest) + 1
        text = f"attention {at} of {len(watch.shares)} has {lowest:.0%} of the entropy of even weights"
        if lowest < self.fail_share:
            return failed(f"{text}: it is saturated", **numbers)
        if lowest < self.warn_share:
            return warned(text, **numbers)
        return passed(f"{text}, the lowest", **numbers)


class _Attention(TorchFunctionMode):
    """Records the entropy of the last query's weights in each attention call, relative to uniform weights."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "scaled_dot_product_attention" and len(self.shares) < CALLS_MAX:
            query = kwargs.get("query", args[0] if args else None)
            key = kwargs.get("key", args[1] if len(args) > 1 else None)
            mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
            if isinstance(query, Tensor) and isinstance(key, Tensor):
                share = _share(query, key, mask, kwargs.get("scale"))
                if share is not None:
                    self.shares.append(share)
        return func(*args, **kwargs)


def _share(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> float | None:
    if key.shape[-2] < POSITIONS_MIN or query.dim() < 3:
        return None
    if query.dim() == 4 and key.dim() == 4 and query.shape[1] != key.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = (query[..., -1:, :] @ key.transpose(-1, -2)).float() * (scale or 1 / math.sqrt(query.shape[-1]))
    seen = torch.ones_like(logits, dtype=torch.bool)
    if isinstance(mask, Tensor):
        last = mask[..., -1:, :]
        logits = logits.masked_fill(~last, -math.inf) if last.dtype == torch.bool else logits + last
        seen = seen & (last if last.dtype == torch.bool else last > -1e4)
    weights = torch.softmax(logits, dim=-1)
    entropies = -(weights * weights.clamp_min(1e-30).log()).sum(-1)
    even = seen.sum(-1).float().clamp_min(2).log()
    wide = seen.sum(-1) >= POSITIONS_MIN
    return float((entropies / even)[wide].detach().mean()) if bool(wide.any()) else None
