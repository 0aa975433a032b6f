"""One pass over whole tensors in CPU memory with NumPy, in blocks that fit the cache.

Torch's own reductions differ in speed there (``aminmax`` is bound by computation, ``vector_norm`` uses one thread), and
each would read the memory again. A block is read once and reduced four times while it is in the cache. A block where
float32 could overflow, underflow or hold NaN is reduced again in float64.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadytrain.capture.tensors.statistics.sample_chunks import in_memory_order, is_dense

PARTS = ("squares", "min", "max", "sum", "nonfinite", "finite")
"""The statistics of a part of a tensor; all but ``nonfinite`` cover its finite elements. Parts can be combined."""

BLOCK = 1 << 18
"""Elements: 1 MiB of float32, half of a core's second cache (2^17 and 2^18 were fastest, 2^16 costs more calls)."""

THREADS_MAX = 4
"""Threads, never more than torch itself may use. Two took 35 ms, one took 54 ms."""

_THREADS_FROM = 1 << 22  # elements; with fewer, a thread costs more than it saves
_DOT = 512  # elements of a dot product; a block has 512 of them, and from 501 on NumPy releases the lock
_SAFE_FROM, _SAFE_TO = 1e-13, 1e15  # range of the largest magnitude whose squares sum in float32 without loss

_SERIAL = 1 << 14  # elements that torch copies on the calling thread, without starting others
_ONES = np.ones((_DOT, 1), np.float32)
_INTEGERS = {
    1: (torch.int8, np.uint8),
    2: (torch.int16, np.uint16),
    4: (torch.int32, np.uint32),
    8: (torch.int64, np.uint64),
}


def partials(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """:data:`PARTS` of each tensor, ``(tensors, 6)``: dense values of any float dtype, shape and layout, on the CPU.

    If ``finite`` is 0 (an empty tensor, for example), ``min`` is inf and ``max`` -inf.
    """
    pieces = [(row, piece) for row, tensor in enumerate(tensors) for piece in _pieces(tensor)]
    found = np.empty((len(pieces), len(PARTS)))
    _in_threads(pieces, found)
    return combine(found, np.array([row for row, _ in pieces], np.int64), len(tensors))


def combine(parts: NDArray[np.float64], rows: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Combine the parts ``(parts, 6)`` of each row into ``(count, 6)``; ``rows`` are their rows."""
    out = np.zeros((count, len(PARTS)))
    out[:, 1], out[:, 2] = np.inf, -np.inf
    if len(rows):
        np.minimum.at(out[:, 1], rows, parts[:, 1])
        np.maximum.at(out[:, 2], rows, parts[:, 2])
        for column in (0, 3, 4, 5):
            out[:, column] = np.bincount(rows, parts[:, column], minlength=count)
    return out


def _pieces(tensor: Tensor) -> list[Tensor]:
    """The tensor as views, in any order: flat blocks if it is dense in memory, else parts small enough to copy."""
    if tensor.numel() == 0:
        return []
    if is_dense(tensor):
        flat = in_memory_order(tensor).view(-1)
        return [flat] if flat.numel() <= BLOCK else list(torch.split(flat, BLOCK))
    if tensor.numel() <= _SERIAL:
        return [tensor]
    longest = max(range(tensor.dim()), key=tensor.size)
    half = tensor.size(longest) // 2
    rest = tensor.size(longest) - half
    return [*_pieces(tensor.narrow(longest, 0, half)), *_pieces(tensor.narrow(longest, half, rest))]


def _in_threads(pieces: Sequence[tuple[int, Tensor]], found: NDArray[np.float64]) -> None:
    sizes = np.cumsum([piece.numel() for _, piece in pieces]) if pieces else np.zeros(1)
    workers = min(torch.get_num_threads(), THREADS_MAX) if sizes[-1] >= _THREADS_FROM else 1
    cuts = [0, *np.searchsorted(sizes, sizes[-1] * np.arange(1, workers) / workers).tolist(), len(pieces)]
    failed: list[BaseException] = []

    def work(start: int, stop: int) -> None:
        try:
            for at in range(start, stop):
                found[at] = partials_of(array(pieces[at][1].reshape(-1)))
        except BaseException as error:  # the caller raises it, not this thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in itertools.pairwise(cuts[1:])]
    for thread in threads:
        thread.start()
    work(cuts[0], cuts[1])
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def partials_of(values: NDArray[Any]) -> tuple[float, float, float, float, float, int]:
    """:data:`PARTS` of one flat array of float32 or float64 that is not empty."""
    smallest, largest = np.minimum.reduce(values), np.maximum.reduce(values)
    magnitude = max(-smallest, largest)
    if magnitude == 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, values.size
    if values.dtype == np.float32 and _SAFE_FROM < magnitude < _SAFE_TO:
        squares, total = _sums(values)
        return squares, smallest, largest, total, 0.0, values.size
    return _exact_partials(values.astype(np.float64, copy=False))


def _sums(values: NDArray[np.float32]) -> tuple[float, float]:
    """Sum of squares and sum: float32 within rows, float64 over rows."""
    rows = len(values) // _DOT
    head, tail = values[: rows * _DOT].reshape(rows, 1, _DOT), values[rows * _DOT :]
    squares, total = float(np.dot(tail, tail)), float(np.dot(tail, _ONES[: len(tail), 0]))
    if rows:
        squares += float(np.matmul(head, head.reshape(rows, _DOT, 1)).sum(dtype=np.float64))
        total += float(np.matmul(head, _ONES).sum(dtype=np.float64))
    return squares, total


def _exact_partials(values: NDArray[np.float64]) -> tuple[float, float, float, float, float, int]:
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore", under="ignore"):
        squares = float(np.square(finite).sum())
    smallest, largest = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    return squares, smallest, largest, finite.sum(), values.size - finite.size, finite.size


def array(piece: Tensor) -> NDArray[Any]:
    """A flat tensor as an array: float32 and float64 without a copy, narrower floats widened."""
    if piece.dtype in (torch.float32, torch.float64):
        return piece.numpy()
    wide = torch.empty(piece.shape, dtype=torch.float32, device="cpu")
    for target, source in zip(torch.split(wide, _SERIAL), torch.split(piece, _SERIAL), strict=True):
        target.copy_(source)
    return wide.numpy()


def bits(piece: Tensor) -> NDArray[Any]:
    """The elements of a flat tensor as unsigned integers of the same width, without a copy."""
    signed, unsigned = _INTEGERS[piece.element_size()]
    return piece.view(signed).numpy().view(unsigned)
