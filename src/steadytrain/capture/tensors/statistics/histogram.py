"""Log2 histograms of magnitudes: the distribution of a tensor's elements over powers of two.

There is one bin for each power of two from 2^-40 to 2^24, the range of bfloat16 training; float16 reaches from 2^-24 to
2^16. More columns count elements that are zero, smaller, larger, or not finite. Values are shares of the counted
elements, so tensors of any size can be compared. The sign is in rows of its own: what of these shares is positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.statistics.passes import alike, kernel_for, split_dense
from steadytrain.capture.tensors.statistics.quiet import quiet
from steadytrain.capture.tensors.statistics.readback import Readback
from steadytrain.capture.tensors.statistics.sample_chunks import SAMPLE_MAX, plan_for
from steadytrain.core.model import Reading

LOWEST, HIGHEST = -40, 24
"""The bins are [2^k, 2^(k+1)) for k from LOWEST to HIGHEST - 1."""

HISTOGRAM_COLUMNS: tuple[str, ...] = (
    "zero",
    "below",
    *(f"2^{power}" for power in range(LOWEST, HIGHEST)),
    "above",
    "nonfinite",
)
"""``2^k`` is the share of magnitudes in [2^k, 2^(k+1)); ``below`` and ``above`` are finite, not zero, and outside."""


POSITIVE = "+:"
"""In the name of a row with the positive elements, where the others have a colon."""


def log2_histogram(
    rows: Sequence[tuple[str, Tensor]], *, size_max: int = SAMPLE_MAX, with_sign: bool = False
) -> Readback[Reading]:
    """A reading of the table ``histograms``: one row for each (row name, tensor). Shares cover a sample of each tensor,
    or the whole tensor on a GPU with Triton.

    Tensors without float values (quantised, integers, meta, empty) have no row. ``with_sign`` adds a row
    ``gradient+:NAME`` for each ``gradient:NAME``: of the positive elements of a sample, the others counted as zero.
    """
    with quiet([tensor for _, tensor in rows]):
        dense = [(name, dense_values(tensor)) for name, tensor in rows]
        kept = [(name, values) for name, values in dense if values is not None and values.numel()]
        names = tuple(name for name, _ in kept)
        tensors = {row: values for row, (_, values) in enumerate(kept)}
        samples = _Samples(tensors, size_max)
        groups = list(_counted(tensors, samples))
        if with_sign:
            groups += [([len(kept) + row for row in at], counts) for at, counts in _counted_positive(tensors, samples)]
            names = (*names, *(name.replace(":", POSITIVE, 1) for name in names))

    def finish(arrived: list[Tensor]) -> Reading:
        values = np.zeros((len(names), len(HISTOGRAM_COLUMNS)))
        for (rows, _), counts in zip(groups, arrived, strict=True):
            values[rows] = counts.numpy()
        values /= values.sum(1, keepdims=True)
        return Reading("histograms", names, HISTOGRAM_COLUMNS, values.astype(np.float32))

    return Readback([counts for _, counts in groups], finish)


class _Samples(dict[int, Tensor]):
    """The samples of the rows that were asked for, each taken once."""

    def __init__(self, tensors: Mapping[int, Tensor], size_max: int) -> None:
        super().__init__()
        self._tensors = tensors
        self._size_max = size_max

    def __missing__(self, row: int) -> Tensor:
        values = self._tensors[row]
        sample = self[row] = plan_for(values, self._size_max).view(values)
        return sample


def _counted(tensors: Mapping[int, Tensor], samples: Mapping[int, Tensor]) -> Iterator[tuple[list[int], Tensor]]:
    """Rows and their counts ``(rows, columns)``: of samples, or of whole tensors by the GPU kernel."""
    for (device, dtype), rows in alike(tensors).items():
        table = kernel_for(device, lambda _: None)
        if table is not None and dtype in table.dtypes:
            whole, rows = split_dense(rows)
            if whole:
                of_device = table([tensor.numel() for tensor in whole.values()], dtype, device)
                yield list(whole), of_device.histograms(list(whole.values()))
        if rows:
            yield list(rows), torch.stack([count_bins(samples[row]) for row in rows])


def _counted_positive(
    tensors: Mapping[int, Tensor], samples: Mapping[int, Tensor]
) -> Iterator[tuple[list[int], Tensor]]:
    """Rows and the counts of their positive elements, of samples."""
    for rows in alike(tensors).values():
        yield list(rows), torch.stack([count_bins(_positive(samples[row])) for row in rows])


def _positive(sample: Tensor) -> Tensor:
    """What is positive, the rest as zero. Types of 8 bits cannot be clamped."""
    return (sample if sample.dtype == torch.float64 else sample.to(torch.float32)).clamp(min=0)


def count_bins(values: Tensor) -> Tensor:
    """How many elements fall into each of :data:`HISTOGRAM_COLUMNS`: int64, on the device of ``values``."""
    if values.dtype == torch.float64:  # values that float32 rounds to zero or Inf are outside the bins anyway
        limit = 2.0**HIGHEST
        small = torch.where(values == 0, 0.0, values.abs().clamp(2.0 ** (LOWEST - 1), limit))
        values = torch.where(torch.isfinite(values), small, torch.inf)
    bits = values.to(torch.float32).reshape(-1).contiguous().view(torch.int32) & 0x7FFF_FFFF
    exponents = (bits >> 23) - 127
    # 0 is "zero", 1 "below", then the bins; NaN and Inf have the exponent 128.
    places = exponents.clamp(LOWEST - 1, HIGHEST) + (2 - LOWEST)
    places = torch.where(exponents == 128, len(HISTOGRAM_COLUMNS) - 1, places)
    places = torch.where(bits == 0, 0, places)
    return torch.bincount(places, minlength=len(HISTOGRAM_COLUMNS))
