"""Selects the tensors to inspect among a model's inputs and outputs, and makes values plain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

ROWS_LISTED_MAX = 256


def first_output(output: Any) -> Tensor | None:
    """The first floating-point tensor with at least two dimensions; None if there is none."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.dim() > 1 else None
    parts = list(output.values()) if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else []
    found = [part for part in (first_output(value) for value in parts) if part is not None]
    return next(iter(found), None)


def is_ids(value: Any) -> bool:
    """Whether the value is a 2-D integer tensor, like a batch of token ids."""
    return isinstance(value, Tensor) and value.dim() == 2 and value.dtype in (torch.int64, torch.int32)


def plain(value: Any) -> Any:
    """``value`` as JSON: no tensors, and NaN and infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(inner) for inner in value]
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
