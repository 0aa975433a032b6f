"""Which tensors of a model's inputs and outputs are looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS_LISTED_MAX = 256


def first_output(output: Any) -> Tensor | None:
    """The first tensor of numbers with a row for each sample."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.dim() > 1 else None
    parts = list(output.values()) if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else []
    found = [part for part in (first_output(value) for value in parts) if part is not None]
    return next(iter(found), None)


def is_ids(value: Any) -> bool:
    """Whether it is a batch of rows of whole numbers, as token ids are."""
    return isinstance(value, Tensor) and value.dim() == 2 and value.dtype in (torch.int64, torch.int32)
