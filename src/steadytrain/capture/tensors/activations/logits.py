"""log Z of the model's logits, from a sample of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

CLASSES_MIN = 1000
"""A plain tensor that the model puts out is taken for logits from this last dimension on, if nothing better is seen.

ImageNet has 1000 classes, vocabularies have more; hidden states of small models have fewer channels.
"""

ROWS_MAX = 32
ROWS_MIN = 8
ELEMENTS_MAX = 1 << 18

ON_DEVICE = ("log_z_mean", "log_z_max")


def named_logits(output: Any) -> Tensor | None:
    """``output.logits`` or ``output["logits"]``, as Hugging Face models give them."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return found if isinstance(found, Tensor) and found.dim() >= 2 and found.is_floating_point() else None


def likely_logits(output: Any) -> Tensor | None:
    """A plain output whose last dimension is as large as only logits have it."""
    if isinstance(output, Tensor) and output.dim() >= 2 and output.is_floating_point():
        return output if output.shape[-1] >= CLASSES_MIN else None
    return None


def classes_last(values: Tensor) -> Tensor:
    """The input of ``cross_entropy``, whose classes stand in dimension 1 where there are more than two."""
    return values.movedim(1, -1) if values.dim() > 2 else values


def look_at_logits(values: Tensor) -> Tensor | None:
    """:data:`ON_DEVICE` of plain values ``(..., classes)`` as float32; None where there are no classes."""
    if values.dim() < 1 or values.shape[-1] < 2 or not values.numel():
        return None
    log_z = torch.logsumexp(_rows(values).to(torch.float32), dim=-1)
    return torch.stack([log_z.mean(), log_z.max()])


def _rows(values: Tensor) -> Tensor:
    """A few rows evenly spread, ``(rows, classes)``, without a copy of all of them."""
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
