"""Computes all statistics of all tensors in one pass over GPU memory, with a Triton kernel over a table of addresses.

Tensors of one dtype are divided into chunks. One program reduces one chunk; a second kernel sums the chunks of each
tensor in order, in float64. The same input produces the same bits. A chunk with NaN, Inf, or magnitudes whose squares
exceed float32 is read again, and its squares are summed in three ranges (Blue 1978).

This module imports Triton, so it is imported only when there is a tensor for it. It has been run under Triton's
interpreter on a CPU. Before the first use on a device, :func:`works_on` compares it with torch's operations once.
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

from steadytrain.capture.tensors.statistics import torch_pass as by_torch
from steadytrain.capture.tensors.statistics.histogram import HIGHEST, HISTOGRAM_COLUMNS, LOWEST, count_bins

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.int16, torch.float16: tl.float16}
"""The type as which a kernel loads each dtype: bfloat16 as bits, which are the upper half of a float32."""

CHUNK = 1 << 15
"""Elements per program: a few million elements then occupy all processors of a GPU. At most 2^16, see below."""

_LANES = 1 << 11  # elements that a program holds at a time
_ALIGNMENT = 16  # bytes that a thread can load at once
_WARPS = 8  # eight elements per thread
_PARTS = 8
_BINS = 128  # a power of two for tl.histogram; the first of them are HISTOGRAM_COLUMNS
_NONFINITE = len(HISTOGRAM_COLUMNS) - 1

# Chunks whose largest magnitude is between these need no special treatment.
_SAFE_FROM, _SAFE_TO = tl.constexpr(1e-13), tl.constexpr(1e15)
# In others, magnitudes outside 2^-50 to 2^40 are scaled before squaring; then 2^16 squares of a range fit float32.
_SMALL, _BIG = tl.constexpr(2.0**-50), tl.constexpr(2.0**40)
_SMALL_UP, _BIG_DOWN = tl.constexpr(2.0**100), tl.constexpr(2.0**-84)


@dataclass(frozen=True)
class Summaries:
    """``partials`` is ``(tensors, 6)`` as from :func:`.torch_pass.partials`. ``histogram`` has the counts of
    :data:`HISTOGRAM_COLUMNS`, ``(tensors, columns)``, or is None."""

    partials: Tensor
    histogram: Tensor | None


class Table:
    """The addresses of the chunks of tensors with fixed sizes and one dtype. Changed addresses are sent again."""

    dtypes = frozenset(DTYPES)

    def __init__(self, sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        chunks = -(-np.array(sizes, np.int64) // CHUNK)
        ends = np.cumsum(chunks)
        owners = np.repeat(np.arange(len(sizes)), chunks)
        offsets = (np.arange(int(ends[-1])) - np.repeat(ends - chunks, chunks)) * CHUNK
        full = offsets + CHUNK <= np.array(sizes)[owners]
        self._dtype = dtype
        self._sizes, self._chunks, self._first = (_send(values, device) for values in (sizes, chunks, ends - chunks))
        self._count = len(owners)
        self._all = (_send(owners, device), _send(offsets, device))
        self._full, self._ragged = (
            tuple(_send(values, device) for values in (owners[chosen], offsets[chosen], np.flatnonzero(chosen)))
            for chosen in (full, ~full)
        )
        self._pointers: list[int] = []
        self._addresses = self._sizes
        self._aligned = False

    def summarise(self, tensors: Sequence[Tensor], *, histogram: bool) -> Summaries:
        """Summarise dense tensors of this table's sizes, on the current stream, without a synchronisation."""
        pointers = [tensor.data_ptr() for tensor in tensors]
        device = self._sizes.device
        if pointers != self._pointers:
            self._pointers, self._addresses = pointers, _send(pointers, device)
            self._aligned = all(pointer % _ALIGNMENT == 0 for pointer in pointers)
        parts = torch.empty((self._count, _PARTS), dtype=torch.float32, device=device)
        counts = torch.empty((self._count if histogram else 1, _BINS), dtype=torch.int32, device=device)
        summed = torch.empty((len(tensors), _PARTS), dtype=torch.float64, device=device)
        bins = torch.empty((len(tensors) if histogram else 1, _BINS), dtype=torch.int64, device=device)
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._launch(len(tensors), parts, counts, summed, bins, histogram=histogram)
        return self._assemble(summed, bins if histogram else None)

    def histograms(self, tensors: Sequence[Tensor]) -> Tensor:
        """The counts of :data:`HISTOGRAM_COLUMNS`, ``(tensors, columns)``."""
        found = self.summarise(tensors, histogram=True).histogram
        assert found is not None
        return found

    def _launch(
        self, tensors: int, parts: Tensor, counts: Tensor, summed: Tensor, bins: Tensor, *, histogram: bool
    ) -> None:
        for chunks, is_full in ((self._full, True), (self._ragged, False)):
            if not len(chunks[0]):
                continue
            _reduce_chunks[(len(chunks[0]),)](
                self._addresses,
                self._sizes,
                *chunks,
                parts,
                counts,
                element=DTYPES[self._dtype],
                alignment=_ALIGNMENT if self._aligned else 1,
                is_full=is_full,
                chunk_size=CHUNK,
                lane_count=_LANES,
                part_count=_PARTS,
                bin_count=_BINS,
                lowest=LOWEST,
                highest=HIGHEST,
                nonfinite_bin=_NONFINITE,
                with_histogram=histogram,
                num_warps=_WARPS,
                enable_fp_fusion=True,
            )
        _reduce_with_care[(self._count,)](
            self._addresses,
            self._sizes,
            *self._all,
            parts,
            element=DTYPES[self._dtype],
            chunk_size=CHUNK,
            lane_count=_LANES,
            part_count=_PARTS,
            num_warps=_WARPS,
            enable_fp_fusion=True,
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
            enable_fp_fusion=True,
        )

    def _assemble(self, summed: Tensor, bins: Tensor | None) -> Summaries:
        small, middle, big, rest, large, smallest, largest, nonfinite = summed.unbind(1)
        squares = small * 2.0**-200 + middle + big * 2.0**168
        total = rest + large * 2.0**84
        finite = self._sizes.to(torch.float64) - nonfinite
        partials = torch.stack([squares, smallest, largest, total, nonfinite, finite], dim=1)
        return Summaries(partials, bins[:, : len(HISTOGRAM_COLUMNS)] if bins is not None else None)


def works_on(device: torch.device) -> bool:
    """Whether both kernels agree with torch on a few tensors that have every kind of value. Compiles and waits."""
    hard = [1.5, -2.0, 0.0, 1e-40, 3e38, -1e38, 1e-20, 4.0, float("nan"), float("inf")]
    tensors = [torch.tensor(values, dtype=torch.float32, device=device) for values in (hard * 5000, [-3.0])]
    found = Table([tensor.numel() for tensor in tensors], torch.float32, device).summarise(tensors, histogram=True)
    expected = by_torch.partials(tensors)
    assert found.histogram is not None
    bins = torch.stack([count_bins(tensor) for tensor in tensors])
    return bool(torch.allclose(found.partials, expected, rtol=1e-5) and torch.equal(found.histogram, bins))


def _send(values: Any, device: torch.device) -> Tensor:
    return by_torch.vector(values, torch.int64, device)


@triton.jit
def _load(start, at, left, element: tl.constexpr, is_full: tl.constexpr):
    """(values, mask) of the elements ``at``, widened. Positions from ``left`` on are past the end: masked and 0."""
    if is_full:  # without a mask a thread loads its lanes together
        here = at >= 0
        loaded = tl.load(start + at)
    else:
        here = at < left
        loaded = tl.load(start + at, mask=here, other=0)
    if element == tl.int16:
        return (loaded.to(tl.int32) << 16).to(tl.float32, bitcast=True), here
    else:
        return loaded.to(tl.float32), here


@triton.jit
def _reduce_chunks(
    addresses,
    sizes,
    owners,
    offsets,
    slots,
    parts,
    counts,
    element: tl.constexpr,
    alignment: tl.constexpr,
    is_full: tl.constexpr,
    chunk_size: tl.constexpr,
    lane_count: tl.constexpr,
    part_count: tl.constexpr,
    bin_count: tl.constexpr,
    lowest: tl.constexpr,
    highest: tl.constexpr,
    nonfinite_bin: tl.constexpr,
    with_histogram: tl.constexpr,
):
    program = tl.program_id(0)
    owner = tl.load(owners + program)
    offset = tl.multiple_of(tl.load(offsets + program), chunk_size)
    chunk = tl.load(slots + program)
    left = tl.load(sizes + owner) - offset
    start = tl.multiple_of(tl.load(addresses + owner).to(tl.pointer_type(element)), alignment) + offset
    lanes = tl.arange(0, lane_count)
    row = parts + chunk * part_count

    squares = tl.zeros((lane_count,), tl.float32)
    total = tl.zeros((lane_count,), tl.float32)
    smallest = tl.full((lane_count,), float("inf"), tl.float32)
    largest = tl.full((lane_count,), float("-inf"), tl.float32)
    bins = tl.zeros((bin_count,), tl.int32)
    for begin in range(0, chunk_size, lane_count):
        value, here = _load(start, begin + lanes, left, element, is_full)
        squares += value * value
        total += value
        smallest = tl.minimum(smallest, tl.where(here, value, float("inf")))
        largest = tl.maximum(largest, tl.where(here, value, float("-inf")))
        if with_histogram:
            # Works on bits, because flushing to zero would hide subnormal numbers.
            bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
            exponent = (bits >> 23) - 127
            place = tl.minimum(tl.maximum(exponent, lowest - 1), highest) + (2 - lowest)
            place = tl.where(exponent == 128, nonfinite_bin, place)
            place = tl.where(bits == 0, 0, place)
            bins += tl.histogram(tl.where(here, place, bin_count - 1), bin_count)
    if with_histogram:
        tl.store(counts + chunk * bin_count + tl.arange(0, bin_count), bins)

    all_squares = tl.sum(squares)
    peak = tl.maximum(-tl.min(smallest), tl.max(largest))
    # Minimum and maximum may ignore NaN, but the squares propagate it.
    plain = ((peak > _SAFE_FROM) & (peak < _SAFE_TO) | (peak == 0.0)) & (all_squares < float("inf"))
    tl.store(row + 0, 0.0)
    tl.store(row + 1, all_squares)
    tl.store(row + 2, 0.0)
    tl.store(row + 3, tl.sum(total))
    tl.store(row + 4, 0.0)
    tl.store(row + 5, tl.min(smallest))
    tl.store(row + 6, tl.max(largest))
    tl.store(row + 7, tl.where(plain, 0.0, -1.0))  # -1 requests _reduce_with_care


@triton.jit
def _reduce_with_care(
    addresses,
    sizes,
    owners,
    offsets,
    parts,
    element: tl.constexpr,
    chunk_size: tl.constexpr,
    lane_count: tl.constexpr,
    part_count: tl.constexpr,
):
    """Reduce the finite elements of chunks with NaN, Inf, or magnitudes whose squares exceed float32, in three ranges.

    This is a separate kernel, so the common one needs few registers. Of a healthy chunk it reads one number.
    """
    chunk = tl.program_id(0).to(tl.int64)
    row = parts + chunk * part_count
    if tl.load(row + 7) >= 0.0:
        return
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
    for begin in range(0, chunk_size, lane_count):
        value, here = _load(start, begin + lanes, left, element, False)
        finite = (value.to(tl.int32, bitcast=True) & 0x7FFFFFFF) < 0x7F800000
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
        nonfinite += (here & (finite == 0)).to(tl.int32)
    tl.store(row + 0, tl.sum(small))
    tl.store(row + 1, tl.sum(middle))
    tl.store(row + 2, tl.sum(big))
    tl.store(row + 3, tl.sum(rest))
    tl.store(row + 4, tl.sum(large))
    tl.store(row + 5, tl.min(smallest))
    tl.store(row + 6, tl.max(largest))
    tl.store(row + 7, tl.sum(nonfinite).to(tl.float32))


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
    columns = tl.arange(0, part_count)
    total = tl.zeros((part_count,), tl.float64)
    smallest = tl.full((part_count,), float("inf"), tl.float64)
    largest = tl.full((part_count,), float("-inf"), tl.float64)
    places = tl.arange(0, bin_count)
    found = tl.zeros((bin_count,), tl.int64)
    for chunk in range(first, last):
        values = tl.load(parts + chunk * part_count + columns).to(tl.float64)
        total += values
        smallest = tl.minimum(smallest, values)
        largest = tl.maximum(largest, values)
        if with_histogram:
            found += tl.load(counts + chunk * bin_count + places).to(tl.int64)
    tl.store(
        summed + tensor * part_count + columns,
        tl.where(columns == 5, smallest, tl.where(columns == 6, largest, total)),
    )
    if with_histogram:
        tl.store(bins + tensor * bin_count + places, found)
