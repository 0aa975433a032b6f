"""Measures log Z (logsumexp) of the model's logits, from a sample of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

CLASSES_MIN = 1000
"""A plain output tensor counts as logits if its last dimension has at least this size and there is no better evidence.

ImageNet has 1000 classes, vocabularies have more; hidden states of small models have fewer channels.
"""

ROWS_MAX = 32
ROWS_MIN = 8
ELEMENTS_MAX = 1 << 18

ON_DEVICE = ("log_z_mean", "log_z_max")


def named_logits(output: Any) -> Tensor | None:
    """``output.logits`` or ``output["logits"]``, as Hugging Face models return them."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return found if isinstance(found, Tensor) and found.dim() >= 2 and found.is_floating_point() else None


def likely_logits(output: Any) -> Tensor | None:
    """A plain output whose last dimension is so large that it must be logits; else None."""
    if isinstance(output, Tensor) and output.dim() >= 2 and output.is_floating_point():
        return output if output.shape[-1] >= CLASSES_MIN else None
    return None


def classes_last(values: Tensor) -> Tensor:
    """The input of ``cross_entropy`` with classes in the last dimension; with over two dimensions they are in 1."""
    return values.movedim(1, -1) if values.dim() > 2 else values


def look_at_logits(values: Tensor) -> Tensor | None:
    """:data:`ON_DEVICE` of plain values ``(..., classes)`` as float32; None without classes. A square of scores is that
    of a batch against itself, as contrastive losses have it: no output layer made it."""
    is_square = values.dim() == 2 and values.shape[0] == values.shape[1]
    if values.dim() < 1 or values.shape[-1] < 2 or not values.numel() or is_square:
        return None
    log_z = torch.logsumexp(_rows(values).to(torch.float32), dim=-1)
    return torch.stack([log_z.mean(), log_z.max()])


def _rows(values: Tensor) -> Tensor:
    """A few evenly spread rows, ``(rows, classes)``, without a copy of all rows."""
    classes = values.shape[-1]
    limit = min(ROWS_MAX, max(ROWS_MIN, ELEMENTS_MAX // classes))
    if values.is_contiguous():
        rows = values.view(-1, classes)
        return rows[:: -(-len(rows) // limit)]
    for dimension in range(values.dim() - 1):
        rest = values.shape[:-1].numel() // limit
        step = min(values.shape[dimension], max(1, rest))
        values = values[(slice(None),) * dimension + (slice(None, None, step),)]
    return values.reshape(-1, classes)
