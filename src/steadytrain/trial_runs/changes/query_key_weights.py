"""Smaller weights of queries and keys where the scores of their head are too large."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from steadytrain.trial_runs.changes import LiveChange, more_than
from steadytrain.trial_runs.function_stand_ins import ATTENTION, MASKED, SOFTMAX
from steadytrain.trial_runs.launched_script import CannotApplyError, Launched

UNKNOWN = "the model has no nn.MultiheadAttention and no module with q_proj and k_proj, so no head's weights are known"
COMPILED = "{name} is compiled, so its scores are not seen"
NORMALIZED = ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_norm", "key_norm")
"""Where queries or keys are normalized after their projection, the size of its weights changes no score."""


@dataclass
class _Attention:
    """One attention: its heads, and the rows of its weights and biases for queries and for keys."""

    heads: int
    key_heads: int
    queries: list[Tensor]
    keys: list[Tensor]


@final
@dataclass
class ClipQueryKeyWeights(LiveChange):
    """After each update, divides the weights of a head's queries and keys if its largest score exceeded ``limit``.

    QK-clip (Kimi K2, arXiv 2507.20534, section 2.1): a head with the largest score s of the step gets its query and key
    weights, and their biases, multiplied by ``sqrt(limit / s)`` each. Where several heads of queries share one of keys,
    the query weights alone are multiplied by ``limit / s``.
    """

    limit: float = 100.0
    nothing = "no score of attention was above the limit"
    _heads: dict[nn.Module, int] = field(default_factory=dict, init=False, repr=False)
    _largest: dict[nn.Module, Tensor] = field(default_factory=dict, init=False, repr=False)
    _running: list[nn.Module] = field(default_factory=list, init=False, repr=False)
    _hooks: list[RemovableHandle] = field(default_factory=list, init=False, repr=False)

    def check(self) -> None:
        more_than("limit", self.limit, 0.0)

    def begin(self, process: Launched) -> None:
        compiled = process.compiled()
        if compiled is not None:
            raise CannotApplyError(COMPILED.format(name=compiled))
        if not self._heads:
            known = ((module, attention_of(module)) for module in process.modules())
            self._heads = {module: one.heads for module, one in known if one is not None}
            if not self._heads:
                raise CannotApplyError(UNKNOWN)
            for module in self._heads:
                self._hooks.append(module.register_forward_pre_hook(self._enter))
                self._hooks.append(module.register_forward_hook(self._leave, always_call=True))
        process.functions.replace(ATTENTION, self._attention)
        process.functions.replace(SOFTMAX, self._softmax)

    def end(self, process: Launched) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._heads.clear()
        self._largest.clear()

    @torch.no_grad()
    def updated(self, process: Launched) -> None:
        """One copy to the host for all heads. The weights are looked up anew: a script may have replaced them."""
        seen = dict(self._largest)
        self._largest.clear()
        if not seen:
            return
        device = next(iter(seen.values())).device
        values = torch.cat([one.to(device) for one in seen.values()]).tolist()
        for module in seen:
            attention = attention_of(module)
            if attention is not None:
                self._clip(attention, values[: self._heads[module]])
            del values[: self._heads[module]]

    def _clip(self, attention: _Attention, largest: list[float]) -> None:
        shared = attention.heads != attention.key_heads
        for head, score in enumerate(largest):
            if not (math.isfinite(score) and score > self.limit):
                continue
            self.touch()
            factor = self.limit / score
            for rows in attention.queries:
                _of_head(rows, head, attention.heads).mul_(factor if shared else math.sqrt(factor))
            for rows in () if shared else attention.keys:
                _of_head(rows, head, attention.key_heads).mul_(math.sqrt(factor))

    # -- what the forward computes ---------------------------------------------------------------------------------

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._running.append(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running:
            self._running.pop()

    def _attention(self, original: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._running and torch.is_grad_enabled():
            mask = args[0] if args else kwargs.get("attn_mask")
            causal = bool(args[2] if len(args) > 2 else kwargs.get("is_causal", False))
            self._see(_scores(query, key, kwargs.get("scale"), mask, causal=causal))
        return original(query, key, value, *args, **kwargs)

    def _softmax(self, original: Any, scores: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._running and torch.is_grad_enabled() and scores.dim() >= 3:
            self._see(scores.detach())
        return original(scores, *args, **kwargs)

    @torch.no_grad()
    def _see(self, scores: Tensor) -> None:
        """The largest score of each head, over the step so far."""
        module = self._running[-1]
        heads = self._heads[module]
        if scores.dim() == 3 and len(scores) % heads == 0:
            scores = scores.reshape(-1, heads, *scores.shape[-2:])
        if scores.dim() != 4 or scores.shape[1] != heads:
            return
        largest, before = scores.amax((0, 2, 3)).float(), self._largest.get(module)
        self._largest[module] = largest if before is None else torch.maximum(before, largest)


def attention_of(module: nn.Module) -> _Attention | None:
    """What is known of it, None if it is no attention whose weights of queries and keys decide its scores."""
    if any(getattr(module, name, None) is not None for name in NORMALIZED):
        return None
    return _of_torch(module) if isinstance(module, nn.MultiheadAttention) else _of_projections(module)


def _of_torch(module: nn.MultiheadAttention) -> _Attention:
    width = module.embed_dim
    weight: Tensor | None = module.in_proj_weight
    bias: Tensor | None = module.in_proj_bias
    if weight is not None:
        queries, keys = [weight[:width]], [weight[width : 2 * width]]
    else:
        queries, keys = [module.q_proj_weight], [module.k_proj_weight]
    if bias is not None:
        queries.append(bias[:width])
        keys.append(bias[width : 2 * width])
    return _Attention(
        module.num_heads, module.num_heads, *(([one.detach() for one in held]) for held in (queries, keys))
    )


def _of_projections(module: nn.Module) -> _Attention | None:
    """A module with ``q_proj`` and ``k_proj``, as in Hugging Face's models, and a known number of heads."""
    query, key = getattr(module, "q_proj", None), getattr(module, "k_proj", None)
    if not isinstance(query, nn.Linear) or not isinstance(key, nn.Linear):
        return None
    config = getattr(module, "config", None)
    names = ("num_heads", "num_attention_heads", "n_heads", "n_head")
    heads = next((n for one in (module, config) for name in names if isinstance(n := getattr(one, name, None), int)), 0)
    width = getattr(module, "head_dim", None) or (query.out_features // heads if heads else 0)
    if not heads or not isinstance(width, int) or query.out_features != heads * width or key.out_features % width:
        return None
    rows = [[one.weight.detach(), *([one.bias.detach()] if one.bias is not None else [])] for one in (query, key)]
    return _Attention(heads, key.out_features // width, rows[0], rows[1])


def _of_head(rows: Tensor, head: int, heads: int) -> Tensor:
    size = len(rows) // heads
    return rows[head * size : (head + 1) * size]


@torch.no_grad()
def _scores(query: Tensor, key: Tensor, scale: float | None, mask: Any, *, causal: bool) -> Tensor:
    groups = query.shape[-3] // key.shape[-3] if key.shape[-3] else 1
    keys = key.repeat_interleave(groups, -3) if groups > 1 else key
    scores = query @ keys.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~keep, -torch.inf)
    if isinstance(mask, Tensor):
        scores = scores.masked_fill(~mask if mask.dtype == torch.bool else mask <= MASKED, -torch.inf)
    return scores
