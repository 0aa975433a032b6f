"""Statistics of one tensor that a module put out, at the moment it did: it may be overwritten right after.

On the CPU ``sum``, ``norm`` and ``aminmax`` cost about a third of a copy each, and everything else costs ten times as
much or more; so mean, extremes and finiteness come from all elements, and the rest from a sample with a fixed stride.
Nothing here synchronises with a device, draws a random number, or keeps the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

SAMPLE_MAX = 1 << 13
"""Elements looked at for kurtosis and zero share: a zero share of one half is then known to 0.006."""

NESTING_MAX = 4
ENTRIES_MAX = 16

ON_DEVICE = ("sum", "norm", "smallest", "largest", "nonfinite", "sample_std", "kurtosis", "zero_share")
"""What :func:`look` puts in its vector, in this order."""


@dataclass(frozen=True)
class Look:
    """One call's output: ``values`` holds :data:`ON_DEVICE` as float32 on the tensor's own device."""

    count: int
    dtype: torch.dtype
    values: Tensor


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
    """The local values of ``tensor`` as a plain strided tensor of real floats; None for a kind that has none.

    Sharded tensors (DTensor) give their local part, sparse and jagged ones their stored values, complex ones a real
    view. Quantised tensors, tensors without data, and subclasses with a dispatch of their own are left alone.
    """
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None  # inside vmap or grad transforms: there are no numbers yet
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ and tensor.layout != torch.jagged:
        return None
    with torch._C.DisableTorchFunctionSubclass():
        tensor = tensor.detach()
        if tensor.is_quantized or tensor.device.type == "meta":
            return None
        if tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        elif tensor.layout != torch.strided:
            tensor = tensor.values()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if not tensor.is_floating_point():
            return None
        return tensor


@torch.no_grad()
def look(values: Tensor) -> Look:
    """Statistics of plain values (see :func:`plain_values`) with at least one element."""
    dtype, count = values.dtype, values.numel()
    if dtype.itemsize == 1:
        values = values.to(torch.float32)  # float8 has no arithmetic
    smallest, largest = torch.aminmax(values)
    accumulate = torch.float64 if dtype == torch.float64 else torch.float32
    vector = [
        values.sum(dtype=accumulate),
        torch.linalg.vector_norm(values, dtype=accumulate),
        smallest,
        largest,
        _count_nonfinite(values, smallest, largest),
        *_moments(sample(values)),
    ]
    return Look(count, dtype, torch.stack([value.to(torch.float32) for value in vector]))


def sample(values: Tensor, limit: int = SAMPLE_MAX) -> Tensor:
    """At most about ``limit`` elements, taken with a fixed stride over memory, as one dimension."""
    if values.numel() <= limit:
        return values.reshape(-1)
    if not values.is_contiguous():  # e.g. transposed: as it lies in memory
        values = values.permute(sorted(range(values.dim()), key=lambda d: (-values.stride()[d], d)))
    if values.is_contiguous():
        stride = -(-values.numel() // limit) | 1  # odd, or it would hit the same few columns of each row
        return values.view(-1)[::stride]
    excess = values.numel() / limit
    for dimension in sorted(range(values.dim()), key=lambda d: -values.shape[d]):
        step = min(values.shape[dimension], math.ceil(excess))
        values = values[(slice(None),) * dimension + (slice(None, None, step),)]
        excess /= step
    return values.reshape(-1)


def _count_nonfinite(values: Tensor, smallest: Tensor, largest: Tensor) -> Tensor:
    """On the CPU the extremes tell whether there is anything to count, and counting is what costs."""
    if values.device.type == "cpu" and math.isfinite(smallest.item()) and math.isfinite(largest.item()):
        return torch.zeros(())
    return torch.isfinite(values).logical_not_().sum()


def _moments(taken: Tensor) -> list[Tensor]:
    """Standard deviation, kurtosis and share of zeros. In float64 no fourth power overflows (MPS has none)."""
    wide = taken.to(torch.float32 if taken.device.type == "mps" else torch.float64)
    zeros = (wide == 0).to(wide.dtype).mean()
    wide = wide - wide.mean()
    square = wide * wide
    variance = square.mean()
    fourth = torch.dot(square, square) / square.numel()
    return [variance.sqrt(), fourth / (variance * variance), zeros]
