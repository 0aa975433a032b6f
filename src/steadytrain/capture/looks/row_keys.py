"""A number for each row of a call, by which rows are recognised."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.core.torch_private import IS_FUNCTORCH

ROWS_MAX, COLUMNS_MAX = 1 << 16, 256


@torch.no_grad()
def row_keys(args: Any, kwargs: Any) -> Tensor | None:
    """A number for each row of the first tensor of a call, equal for equal rows, int64; None without rows or values.

    A row is one image (the last three dimensions), one vector, or one sequence of ids.
    """
    first = next((one for one in tensors_in((args, kwargs)) if one.dim() > 1 and one.numel()), None)
    if first is None or not is_plain(first):
        return None
    ends = 1 if first.is_floating_point() and first.dim() < 4 else min(3, first.dim() - 1)
    if not first.is_floating_point():
        ends = first.dim() - 1
    rows = first.detach().flatten(-ends).reshape(-1, first.flatten(-ends).shape[-1])[:ROWS_MAX]
    rows = rows[:, :: -(-rows.shape[1] // COLUMNS_MAX)].float().contiguous()
    return (rows.view(torch.int32).long() * _weights(rows.shape[1], rows.device)).sum(-1)


def is_plain(one: Tensor) -> bool:
    """Whether the values of a tensor can be read as they lie in memory, as numbers that are not complex."""
    if type(one) is not Tensor or IS_FUNCTORCH(one) or one.layout is not torch.strided:
        return False
    return not (one.is_complex() or one.is_meta or one.is_nested)


@lru_cache(maxsize=8)
def _weights(columns: int, device: torch.device) -> Tensor:
    return torch.arange(1, columns + 1, device=device) * 2_654_435_761 | 1
