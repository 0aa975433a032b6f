"""Statistics of one output tensor of a module, computed at once because the script may overwrite it right after.

Mean, extremes and finiteness come from one pass over all elements, the rest from a fixed sample. Nothing here waits for
a GPU, draws a random number, or keeps the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.statistics import numpy_pass, torch_pass
from steadytrain.capture.tensors.statistics.histogram import count_bins
from steadytrain.capture.tensors.statistics.numpy_pass import PARTS
from steadytrain.capture.tensors.statistics.passes import kernel_for
from steadytrain.capture.tensors.statistics.sample_chunks import is_dense, plan_for
from steadytrain.core.torch_private import IS_FUNCTORCH

if TYPE_CHECKING:
    from steadytrain.capture.tensors.statistics.triton_kernel import Table

SAMPLE_MAX = 1 << 13
"""Elements sampled for kurtosis and zero share: the error of a zero share of one half is then 0.006."""

TABLES_MAX = 32
"""Sizes of outputs whose tables are kept."""

NESTING_MAX = 4
ENTRIES_MAX = 16

ON_DEVICE = (*PARTS, "sample_std", "kurtosis", "zero_share")
"""The entries of :func:`look`'s vector, in this order; all but ``nonfinite`` cover the finite elements."""


@dataclass(frozen=True)
class Look:
    """One call's output: ``values`` has :data:`ON_DEVICE`, ``bins`` a log2 histogram, on the tensor's own device."""

    dtype: torch.dtype
    values: Tensor
    bins: Tensor | None


def first_floating(output: Any, *, depth: int = 0) -> Tensor | None:
    """The first floating-point or complex tensor in ``output``, which may be nested; None if there is none."""
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
    """The first :data:`ENTRIES_MAX` entries of a container; empty for other objects."""
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
    """The values of ``tensor`` from :func:`dense_values`; also None inside vmap, where values do not exist yet."""
    return None if IS_FUNCTORCH(tensor) else dense_values(tensor)


def look(values: Tensor, *, histogram: bool = False) -> Look:
    """Statistics of plain values (see :func:`plain_values`) with at least one element."""
    sample = plan_for(values, SAMPLE_MAX).view(values)
    if values.device.type == "cpu":
        found = torch.from_numpy(np.concatenate([numpy_pass.partials([values])[0], _moments_by_numpy(sample)]))
        return Look(values.dtype, found, count_bins(sample) if histogram else None)
    table = kernel_for(values.device, lambda _: None)
    if table is None or values.dtype not in table.dtypes or not is_dense(values):
        found = torch.cat([torch_pass.partials([values])[0], torch.stack(_moments(sample))])
        return Look(values.dtype, found, count_bins(sample) if histogram else None)
    return look_by_kernel(values, sample, table, histogram=histogram)


def look_by_kernel(values: Tensor, sample: Tensor, table: type[Table], *, histogram: bool) -> Look:
    """The same of dense values by the Triton kernel, with the moments of ``sample``."""
    summaries = _table_for(values, table).summarise([values], histogram=histogram)
    found = torch.cat([summaries.partials[0], torch.stack(_moments(sample)).to(summaries.partials.dtype)])
    return Look(values.dtype, found, summaries.histogram[0] if summaries.histogram is not None else None)


_TABLES: dict[tuple[Any, ...], Table] = {}


def _table_for(values: Tensor, table: type[Table]) -> Table:
    """A table for tensors of this size. To send one to a GPU takes longer than to read most outputs, and the outputs of
    a model have few sizes. Each stream has its own: a table is written on the stream that first needs it."""
    stream = torch.cuda.current_stream(values.device).cuda_stream if values.is_cuda else 0
    key = (table, values.numel(), values.dtype, values.device, stream)
    found = _TABLES.pop(key, None) or table([values.numel()], values.dtype, values.device)
    _TABLES[key] = found  # the last one used is the last
    while len(_TABLES) > TABLES_MAX:
        del _TABLES[next(iter(_TABLES))]
    return found


@np.errstate(all="ignore")  # the script may have had NumPy warn or raise
def _moments_by_numpy(sample: Tensor) -> NDArray[np.float64]:
    """Standard deviation, kurtosis and share of zeros; in float64 no fourth power overflows."""
    wide = sample.reshape(-1).to(torch.float64).numpy()
    finite = wide if math.isfinite(wide.sum()) else wide[np.isfinite(wide)]
    if not finite.size:
        return np.full(3, np.nan)
    zeros = 1.0 - np.count_nonzero(wide) / wide.size
    square = (finite - finite.mean()) ** 2
    variance = square.mean()
    kurtosis = np.dot(square, square) / square.size / (variance * variance)
    return np.array([np.sqrt(variance), kurtosis, zeros])


def _moments(sample: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same without leaving the device."""
    wide = sample.reshape(-1).to(torch_pass.accumulator(sample.device))
    finite = torch.isfinite(wide)
    count = finite.sum()
    mean = torch.where(finite, wide, 0.0).sum() / count
    square = torch.where(finite, wide - mean, 0.0).square()
    variance = square.sum() / count
    kurtosis = square.square().sum() / count / variance.square()
    return variance.sqrt(), kurtosis, (wide == 0).to(wide.dtype).mean()
