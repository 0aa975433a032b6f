"""One pass over the memory of a GPU for all statistics of all tensors, as a Triton kernel over a table of addresses.

Tensors of one dtype are cut into chunks; one program reduces one chunk, a second kernel adds up the chunks of each
tensor in their order and in float64. No atomics: the same input gives the same bits. Squares are summed in three ranges
of magnitude (Blue 1978), so that nothing over- or underflows in float32.

This module imports Triton and is imported only when there is a tensor for it. It has been run under Triton's
interpreter on a CPU; :func:`works_on` compares it with torch's operations once before it is used on a device.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from steadytrain.capture.tensorstats import device as by_torch
from steadytrain.capture.tensorstats.histogram import HIGHEST, HISTOGRAM_COLUMNS, LOWEST, count_bins

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
CHUNK = 1 << 15
"""Elements a program: some million elements then keep all processors of a GPU busy. At most 2^16, see below."""

_LANES = 1 << 11  # elements a program holds at a time
_WARPS = 8  # the ten running sums then take about 80 registers a thread
_PARTS = 10
_BINS = 128  # a power of two for tl.histogram; the first of them are HISTOGRAM_COLUMNS
_NONFINITE = len(HISTOGRAM_COLUMNS) - 1

# Magnitudes outside of 2^-50 to 2^40 are scaled before they are squared; 2^16 squares of any range then fit float32.
_SMALL, _BIG = tl.constexpr(2.0**-50), tl.constexpr(2.0**40)
_SMALL_UP, _BIG_DOWN = tl.constexpr(2.0**100), tl.constexpr(2.0**-84)


@dataclass(frozen=True)
class Summaries:
    """``partials`` is ``(tensors, 6)`` as of :func:`.device.partials`; ``zeros`` and ``subnormals`` are exact counts,
    ``(tensors,)``; ``histogram`` holds counts of :data:`HISTOGRAM_COLUMNS`, ``(tensors, columns)``, or None."""

    partials: Tensor
    zeros: Tensor
    subnormals: Tensor
    histogram: Tensor | None


class Table:
    """Where the chunks of tensors of fixed sizes and one dtype lie; the addresses are sent again when they move."""

    def __init__(self, sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        chunks = -(-np.array(sizes, np.int64) // CHUNK)
        ends = np.cumsum(chunks)
        within = np.arange(int(ends[-1])) - np.repeat(ends - chunks, chunks)
        self._dtype = dtype
        self._sizes, self._chunks, self._first = (_send(values, device) for values in (sizes, chunks, ends - chunks))
        self._owner = _send(np.repeat(np.arange(len(sizes)), chunks), device)
        self._offset = _send(within * CHUNK, device)
        self._pointers: list[int] = []
        self._addresses = self._sizes

    def summarise(self, tensors: Sequence[Tensor], *, histogram: bool) -> Summaries:
        """Dense tensors of this table's sizes; on the current stream, without a synchronisation."""
        pointers = [tensor.data_ptr() for tensor in tensors]
        device = self._sizes.device
        if pointers != self._pointers:
            self._pointers, self._addresses = pointers, _send(pointers, device)
        chunks = self._owner.shape[0]
        parts = torch.empty((chunks, _PARTS), dtype=torch.float32, device=device)
        counts = torch.empty((chunks if histogram else 1, _BINS), dtype=torch.int32, device=device)
        summed = torch.empty((len(tensors), _PARTS), dtype=torch.float64, device=device)
        bins = torch.empty((len(tensors) if histogram else 1, _BINS), dtype=torch.int64, device=device)
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._launch(len(tensors), parts, counts, summed, bins, histogram=histogram)
        return self._assemble(summed, bins if histogram else None)

    def _launch(
        self, tensors: int, parts: Tensor, counts: Tensor, summed: Tensor, bins: Tensor, *, histogram: bool
    ) -> None:
        places = (self._addresses, self._sizes, self._owner, self._offset)
        _reduce_chunks[(self._owner.shape[0],)](
            *places,
            parts,
            counts,
            int(np.float32(torch.finfo(self._dtype).tiny).view(np.int32)),
            element=DTYPES[self._dtype],
            chunk_size=CHUNK,
            lane_count=_LANES,
            part_count=_PARTS,
            bin_count=_BINS,
            lowest=LOWEST,
            highest=HIGHEST,
            nonfinite_bin=_NONFINITE,
            with_histogram=histogram,
            num_warps=_WARPS,
        )
        _add_chunks[(tensors,)](
            self._first,
            self._chunks,
            parts,
            counts,
            summed,
            bins,
            part_count=_PARTS,
            bin_count=_BINS,
            with_histogram=histogram,
        )

    def _assemble(self, summed: Tensor, bins: Tensor | None) -> Summaries:
        small, middle, big, rest, large, smallest, largest, nonfinite, zeros, subnormals = summed.unbind(1)
        squares = small * 2.0**-200 + middle + big * 2.0**168
        total = rest + large * 2.0**84
        finite = self._sizes.to(torch.float64) - nonfinite
        partials = torch.stack([squares, smallest, largest, total, nonfinite, finite], dim=1)
        return Summaries(partials, zeros, subnormals, bins[:, : len(HISTOGRAM_COLUMNS)] if bins is not None else None)


def works_on(device: torch.device) -> bool:
    """Whether both kernels give what torch gives on a few tensors with everything in them. Compiles, and waits."""
    hard = [1.5, -2.0, 0.0, 1e-40, 3e38, -1e38, 1e-20, 4.0, float("nan"), float("inf")]
    tensors = [torch.tensor(values, dtype=torch.float32, device=device) for values in (hard * 5000, [-3.0])]
    found = Table([tensor.numel() for tensor in tensors], torch.float32, device).summarise(tensors, histogram=True)
    expected = by_torch.partials(tensors)
    assert found.histogram is not None
    bins = torch.stack([count_bins(tensor) for tensor in tensors])
    return bool(torch.allclose(found.partials, expected, rtol=1e-5) and torch.equal(found.histogram, bins))


def _send(values: Any, device: torch.device) -> Tensor:
    """Integers to the device, from pinned memory where that is a GPU, so that nothing waits."""
    host = torch.from_numpy(np.asarray(values, np.int64).copy())
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


@triton.jit
def _reduce_chunks(
    addresses,
    sizes,
    owners,
    offsets,
    parts,
    counts,
    smallest_normal_bits,
    element: tl.constexpr,
    chunk_size: tl.constexpr,
    lane_count: tl.constexpr,
    part_count: tl.constexpr,
    bin_count: tl.constexpr,
    lowest: tl.constexpr,
    highest: tl.constexpr,
    nonfinite_bin: tl.constexpr,
    with_histogram: tl.constexpr,
):
    chunk = tl.program_id(0).to(tl.int64)
    owner = tl.load(owners + chunk)
    offset = tl.load(offsets + chunk)
    left = tl.load(sizes + owner) - offset
    start = tl.load(addresses + owner).to(tl.pointer_type(element)) + offset
    lanes = tl.arange(0, lane_count)

    small = tl.zeros((lane_count,), tl.float32)
    middle = tl.zeros((lane_count,), tl.float32)
    big = tl.zeros((lane_count,), tl.float32)
    rest = tl.zeros((lane_count,), tl.float32)
    large = tl.zeros((lane_count,), tl.float32)
    smallest = tl.full((lane_count,), float("inf"), tl.float32)
    largest = tl.full((lane_count,), float("-inf"), tl.float32)
    nonfinite = tl.zeros((lane_count,), tl.int32)
    zeros = tl.zeros((lane_count,), tl.int32)
    subnormals = tl.zeros((lane_count,), tl.int32)
    bins = tl.zeros((bin_count,), tl.int32)

    for begin in range(0, chunk_size, lane_count):
        here = begin + lanes < left
        value = tl.load(start + begin + lanes, mask=here, other=0.0).to(tl.float32)
        # On bits, so that no flushing of subnormal numbers can hide them.
        bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        exponent = (bits >> 23) - 127
        finite = exponent < 128
        is_zero = bits == 0
        kept = tl.where(finite, value, 0.0)
        magnitude = tl.abs(kept)
        is_small = magnitude < _SMALL
        is_big = magnitude > _BIG
        up = tl.where(is_small, kept, 0.0) * _SMALL_UP
        down = tl.where(is_big, kept, 0.0) * _BIG_DOWN
        plain = tl.where(is_small | is_big, 0.0, kept)
        small += up * up
        middle += plain * plain
        big += down * down
        rest += tl.where(is_big, 0.0, kept)
        large += down
        counted = here & finite
        smallest = tl.minimum(smallest, tl.where(counted, value, float("inf")))
        largest = tl.maximum(largest, tl.where(counted, value, float("-inf")))
        nonfinite += (here & (exponent == 128)).to(tl.int32)
        zeros += (here & is_zero).to(tl.int32)
        subnormals += (here & (bits < smallest_normal_bits) & (bits != 0)).to(tl.int32)
        if with_histogram:
            place = tl.minimum(tl.maximum(exponent, lowest - 1), highest) + (2 - lowest)
            place = tl.where(finite, place, nonfinite_bin)
            place = tl.where(is_zero, 0, place)
            place = tl.where(here, place, bin_count - 1)
            bins += tl.histogram(place, bin_count)

    row = parts + chunk * part_count
    tl.store(row + 0, tl.sum(small))
    tl.store(row + 1, tl.sum(middle))
    tl.store(row + 2, tl.sum(big))
    tl.store(row + 3, tl.sum(rest))
    tl.store(row + 4, tl.sum(large))
    tl.store(row + 5, tl.min(smallest))
    tl.store(row + 6, tl.max(largest))
    tl.store(row + 7, tl.sum(nonfinite).to(tl.float32))
    tl.store(row + 8, tl.sum(zeros).to(tl.float32))
    tl.store(row + 9, tl.sum(subnormals).to(tl.float32))
    if with_histogram:
        tl.store(counts + chunk * bin_count + tl.arange(0, bin_count), bins)


@triton.jit
def _add_chunks(
    firsts,
    chunks,
    parts,
    counts,
    summed,
    bins,
    part_count: tl.constexpr,
    bin_count: tl.constexpr,
    with_histogram: tl.constexpr,
):
    tensor = tl.program_id(0).to(tl.int64)
    first = tl.load(firsts + tensor)
    last = first + tl.load(chunks + tensor)
    columns = tl.arange(0, 16)
    inside = columns < part_count
    is_min = columns == 5
    is_max = columns == 6
    total = tl.zeros((16,), tl.float64)
    smallest = tl.full((16,), float("inf"), tl.float64)
    largest = tl.full((16,), float("-inf"), tl.float64)
    places = tl.arange(0, bin_count)
    found = tl.zeros((bin_count,), tl.int64)
    for chunk in range(first, last):
        values = tl.load(parts + chunk * part_count + columns, mask=inside, other=0.0).to(tl.float64)
        total += values
        smallest = tl.minimum(smallest, values)
        largest = tl.maximum(largest, values)
        if with_histogram:
            found += tl.load(counts + chunk * bin_count + places).to(tl.int64)
    out = tl.where(is_min, smallest, tl.where(is_max, largest, total))
    tl.store(summed + tensor * part_count + columns, out, mask=inside)
    if with_histogram:
        tl.store(bins + tensor * bin_count + places, found)
