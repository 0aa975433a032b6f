"""What of a model's output is looked at."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def first_output(output: Any) -> Tensor | None:
    """The first tensor of numbers with a row for each sample."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.dim() > 1 else None
    parts = list(output.values()) if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else []
    found = [part for part in (first_output(value) for value in parts) if part is not None]
    return next(iter(found), None)
