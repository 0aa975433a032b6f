"""Attention masks of the opposite sign."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.function_stand_ins import ATTENTION, MASKED
from steadytrain.trial_runs.launched_script import Launched

FILLS = (torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_)
CHOICES = (torch.where,)
SUMS = (torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__)
SCORES_DIMS = 3
"""Scores of attention have at least so many dimensions: heads or rows, queries, keys."""


@final
@dataclass
class OppositeMask(LiveChange):
    """Attention sees what its mask hides, and does not see what it shows.

    Covers ``masked_fill`` and ``where`` with a very negative number, a mask that is added to scores, and the mask of
    ``scaled_dot_product_attention``, which ``nn.MultiheadAttention`` uses too.
    """

    nothing = "no attention gets a mask that a function of torch applies"

    def begin(self, process: Launched) -> None:
        process.functions.replace(FILLS, self._fill)
        process.functions.replace(CHOICES, self._choose)
        process.functions.replace(SUMS, self._add)
        process.functions.replace(ATTENTION, self._attention)

    def _fill(self, original: Any, scores: Tensor, mask: Tensor, value: Any) -> Any:
        if not _are_scores(scores) or not _closes(value) or not _is_condition(mask):
            return original(scores, mask, value)
        self.touch()
        return original(scores, ~mask, value)

    def _choose(self, original: Any, condition: Tensor, *branches: Any, **given: Any) -> Any:
        shows = [one for one in branches if isinstance(one, Tensor) and _are_scores(one)]
        if len(branches) != 2 or len(shows) != 1 or not _is_condition(condition):
            return original(condition, *branches, **given)
        if not any(_closes(one) for one in branches if one is not shows[0]):
            return original(condition, *branches, **given)
        self.touch()
        return original(~condition, *branches, **given)

    def _add(self, original: Any, one: Any, other: Any, *args: Any, **given: Any) -> Any:
        if isinstance(one, Tensor) and isinstance(other, Tensor) and not args and not given and _are_scores(one):
            turned = _turned(other)
            if turned is not None:
                self.touch()
                return original(one, turned)
        return original(one, other, *args, **given)

    def _attention(
        self,
        original: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *args: Any,
        **given: Any,
    ) -> Any:
        turned = None if attn_mask is None else ~attn_mask if _is_condition(attn_mask) else _turned(attn_mask)
        if turned is None:
            return original(query, key, value, attn_mask, *args, **given)
        self.touch()
        return original(query, key, value, turned, *args, **given)


def _are_scores(one: Tensor) -> bool:
    return one.dim() >= SCORES_DIMS and one.is_floating_point() and one.requires_grad


def _is_condition(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.dtype == torch.bool


def _closes(value: Any) -> bool:
    """Whether a number, or a tensor with one, is so negative that a softmax makes it 0."""
    return (
        isinstance(value, int | float | Tensor)
        and (not isinstance(value, Tensor) or value.numel() == 1)
        and (float(value) <= MASKED)
    )


def _turned(mask: Tensor) -> Tensor | None:
    """A mask of 0 and very negative numbers with both exchanged; None for other tensors."""
    if mask.requires_grad or not mask.is_floating_point() or mask.dim() < 2:
        return None
    closed = mask <= MASKED
    if not bool(closed.any()) or not bool((closed | (mask == 0)).all()):
        return None
    return torch.zeros_like(mask).masked_fill_(
        ~closed, -math.inf if bool(torch.isinf(mask).any()) else float(mask.min())
    )
