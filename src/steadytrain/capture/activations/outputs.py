"""Statistics of one tensor that a module put out, at the moment it did: it may be overwritten right after.

On the CPU ``sum``, ``norm`` and ``aminmax`` cost about a third of a copy each, and everything else costs ten times as
much or more; so mean, extremes and finiteness come from all elements, and the rest from a fixed sample.
Nothing here synchronises with a device, draws a random number, or keeps the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.dense import dense_values
from steadytrain.capture.tensorstats.histogram import count_bins
from steadytrain.capture.tensorstats.sample import plan_for

SAMPLE_MAX = 1 << 13
"""Elements looked at for kurtosis and zero share: a zero share of one half is then known to 0.006."""

NESTING_MAX = 4
ENTRIES_MAX = 16

COUNTED_MAX = 1 << 26
"""Elements up to which NaN and Inf are counted on a GPU; of a larger output with any, the count is told as 1."""

COUNTED_AT_ONCE_MAX = 1 << 22
"""Elements whose finiteness is looked at together: it takes up to six bytes an element for a moment."""

ON_DEVICE = ("sum", "norm", "smallest", "largest", "nonfinite", "sample_std", "kurtosis", "zero_share")
"""What :func:`look` puts in its vector, in this order."""


@dataclass(frozen=True)
class Look:
    """One call's output: ``values`` holds :data:`ON_DEVICE` as float32, ``bins`` a log2 histogram of the sample,
    both on the tensor's own device."""

    count: int
    dtype: torch.dtype
    values: Tensor
    bins: Tensor | None


def first_floating(output: Any, *, depth: int = 0) -> Tensor | None:
    """The first tensor of floating or complex numbers in ``output``, which may be nested; None without one."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() or output.is_complex() else None
    if depth >= NESTING_MAX:
        return None
    for entry in entries(output):
        found = first_floating(entry, depth=depth + 1)
        if found is not None:
            return found
    return None


def entries(output: Any) -> list[Any]:
    """What a container holds, the first :data:`ENTRIES_MAX`; nothing for what is no container."""
    if isinstance(output, Mapping):
        found = list(output.values())
    elif isinstance(output, (list, tuple)):
        found = list(output)
    elif is_dataclass(output) and not isinstance(output, type):
        found = [getattr(output, field.name, None) for field in fields(output)]
    else:
        found = []
    return found[:ENTRIES_MAX]


def plain_values(tensor: Tensor) -> Tensor | None:
    """The numbers of ``tensor`` as :func:`dense_values` gives them; None also inside vmap, where there are none yet."""
    return None if torch._C._functorch.is_functorch_wrapped_tensor(tensor) else dense_values(tensor)


def look(values: Tensor, *, histogram: bool = False) -> Look:
    """Statistics of plain values (see :func:`plain_values`) with at least one element."""
    dtype, count = values.dtype, values.numel()
    if dtype.itemsize == 1:
        values = values.to(torch.float32)  # float8 has no arithmetic
    smallest, largest = torch.aminmax(values)
    accumulate = torch.float64 if dtype == torch.float64 else torch.float32
    sample = plan_for(values, SAMPLE_MAX).view(values)
    vector = [
        values.sum(dtype=accumulate),
        torch.linalg.vector_norm(values, dtype=accumulate),
        smallest,
        largest,
        _count_nonfinite(values, smallest, largest),
        *_moments(sample.reshape(-1)),
    ]
    bins = count_bins(sample) if histogram else None
    return Look(count, dtype, torch.stack([value.to(torch.float32) for value in vector]), bins)


def _count_nonfinite(values: Tensor, smallest: Tensor, largest: Tensor) -> Tensor:
    """On the CPU the extremes tell whether there is anything to count, and counting is what costs. On a device nobody
    waits for the extremes; there counting is cheap, but it needs memory, so a very large output is not counted."""
    if values.device.type == "cpu":
        if math.isfinite(smallest.item()) and math.isfinite(largest.item()):
            return torch.zeros((), dtype=torch.float32, device="cpu")
    elif values.numel() > COUNTED_MAX:
        return ~(torch.isfinite(smallest) & torch.isfinite(largest))
    parts = torch.split(values.view(-1), COUNTED_AT_ONCE_MAX) if values.is_contiguous() else [values]
    return torch.stack([torch.isfinite(part).logical_not_().sum() for part in parts]).sum()


def _moments(taken: Tensor) -> list[Tensor]:
    """Standard deviation, kurtosis and share of zeros. In float64 no fourth power overflows (MPS has none)."""
    wide = taken.to(torch.float32 if taken.device.type == "mps" else torch.float64)
    zeros = (wide == 0).to(wide.dtype).mean()
    wide = wide - wide.mean()
    square = wide * wide
    variance = square.mean()
    fourth = torch.dot(square, square) / square.numel()
    return [variance.sqrt(), fourth / (variance * variance), zeros]
