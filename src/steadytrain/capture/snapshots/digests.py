"""Digests of tensors: equal for equal bits on any device, different for swapped or changed elements.

A tensor's bytes are read as 32-bit words ``w[i]`` (the last one padded with zeros). The digest is its dtype, its shape,
``sum w[i]`` and ``sum w[i] * r[i]``, both modulo 2^64, with a fixed table of random numbers ``r`` (each of its rows has
its own random factor). Integer sums do not depend on the order of summation and have no rounding. The words are half as
wide as the sums: with 64-bit words the top bits (signs) of two words would cancel. The weights are random because with
counting weights (1, 3, 5, ...) two batches of eight small labels were found to agree by chance. Now the chance is below
2^-32 for any two tensors. This checksum protects against chance, not against an adversary.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WORD_BYTES = 4
CHUNK_WORDS = 1 << 15
"""Words processed at once on the host: two arrays of this size fit the cache (measured: 1.6 times as fast as 2^19)."""

DEVICE_CHUNK_WORDS = 1 << 24
ROWS_AT_ONCE = 8
_MODULO = 1 << 64

_OF_NUMPY = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
)


def _random_words(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A fixed random 64-bit number for each input number (the mixing function of SplitMix64)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


_WEIGHTS = _random_words(np.arange(CHUNK_WORDS, dtype=np.uint64))


@functools.lru_cache(maxsize=1 << 16)
def _factor(row: int) -> int:
    """The factor for the sum of a row of ``CHUNK_WORDS`` words: odd, so the product loses no information."""
    return int(_random_words(np.array([row + (1 << 40)], np.uint64))[0]) | 1


class Words:
    """The two sums over bytes that arrive in pieces. Each piece but the last is a whole number of words."""

    def __init__(self) -> None:
        self._sum = 0
        self._weighted = 0
        self._words = 0

    def add(self, data: NDArray[np.uint8]) -> None:
        whole = len(data) // WORD_BYTES * WORD_BYTES
        words = data[:whole].view("<i4")
        start = 0
        if self._words % CHUNK_WORDS == 0:
            start = self._add_rows(words)
        while start < len(words):
            room = CHUNK_WORDS - self._words % CHUNK_WORDS
            self._add(words[start : start + room].astype(np.int64))
            start += room
        if whole < len(data):
            last = np.zeros(WORD_BYTES, np.uint8)
            last[: len(data) - whole] = data[whole:]
            self._add(last.view("<i4").astype(np.int64))

    def _add_rows(self, words: NDArray[np.int32]) -> int:
        """Add the whole rows of ``words``, in as few calls as possible; returns the number of words added.

        Each call releases and reacquires the interpreter's lock. A background thread must not do so thousands of times:
        on a busy machine the system may suspend it while it holds the lock.
        """
        rows = len(words) // CHUNK_WORDS
        room = np.empty((min(rows, ROWS_AT_ONCE), CHUNK_WORDS), np.int64)
        for start in range(0, rows, ROWS_AT_ONCE):
            block = words[start * CHUNK_WORDS : min(start + ROWS_AT_ONCE, rows) * CHUNK_WORDS]
            wide = room[: len(block) // CHUNK_WORDS]
            wide[...] = block.reshape(-1, CHUNK_WORDS)
            first = self._words // CHUNK_WORDS
            for row, (plain, weighted) in enumerate(
                zip(wide.sum(1).tolist(), wide.dot(_WEIGHTS).tolist(), strict=True)
            ):
                self.add_row(first + row, plain, weighted)
            self._words += len(block)
        return rows * CHUNK_WORDS

    def _add(self, words: NDArray[np.int64]) -> None:
        """Add words of one row."""
        row, place = divmod(self._words, CHUNK_WORDS)
        self.add_row(row, int(words.sum()), int(np.dot(words, _WEIGHTS[place : place + len(words)])))
        self._words += len(words)

    def add_row(self, row: int, plain: int, weighted: int) -> None:
        """Add the finished sums of a row's words."""
        self._sum += plain
        self._weighted = (self._weighted + weighted * _factor(row)) % _MODULO

    @property
    def text(self) -> str:
        return f"{self._sum % _MODULO:016x}{self._weighted % _MODULO:016x}"


def labelled(tensor: Tensor, words: Words) -> str:
    """The digest of ``tensor`` from the sums of its bytes in ``words``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}:{words.text}".replace(" ", "")


def digest(tensor: Tensor) -> str:
    """The digest of a tensor on any device. A tensor without plain memory is digested as its dense values.

    Synchronises once if the tensor is on an accelerator; additional memory is bounded.
    """
    data = plain_bytes(tensor)
    if data is None:
        return _digest(tensor)
    words = Words()
    words.add(data)
    return labelled(tensor, words)


def plain_bytes(tensor: Tensor) -> NDArray[np.uint8] | None:
    """The memory of a tensor that lies on the host as it is to be written; None for any other one.

    The tape has a few small tensors of each step. For those the way over :func:`plain_values` takes several times as
    long as the sums.
    """
    if type(tensor) is not Tensor or tensor.dtype not in _OF_NUMPY or tensor.requires_grad:
        return None
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_neg():
        return None
    array: NDArray[np.uint8] = tensor.numpy().reshape(-1).view(np.uint8)
    return array


@torch.no_grad()
def _digest(tensor: Tensor) -> str:
    plain = plain_values(tensor)
    words = Words()
    if plain.device.type == "cpu":
        words.add(bytes_of(plain))
        return labelled(plain, words)
    for row, (plain_sum, weighted) in enumerate(_sums_on_device(plain)):
        words.add_row(row, plain_sum, weighted)
    return labelled(plain, words)


def plain_values(tensor: Tensor) -> Tensor:
    """``tensor`` as an ordinary dense contiguous tensor; shares its memory if it already is one."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg().contiguous()


def bytes_of(tensor: Tensor) -> NDArray[np.uint8]:
    """The memory of a contiguous host tensor, without a copy."""
    array: NDArray[np.uint8] = _flat(tensor).view(torch.uint8).numpy()
    return array


def _flat(tensor: Tensor) -> Tensor:
    """The flattened contiguous tensor. With at most one element its stride is arbitrary, so it is copied."""
    return tensor.reshape(-1) if tensor.numel() > 1 else tensor.reshape(-1).clone(memory_format=torch.contiguous_format)


def text_digest(*parts: Any) -> str:
    """A short hash of plain values, from their ``repr`` (bytes are hashed directly)."""
    sha = hashlib.blake2b(digest_size=16)
    for part in parts:
        sha.update(part if isinstance(part, bytes) else repr(part).encode())
        sha.update(b"\0")
    return sha.hexdigest()


def _sums_on_device(tensor: Tensor) -> list[tuple[int, int]]:
    """The two sums of each row."""
    data = _flat(tensor).view(torch.uint8)
    missing = -data.numel() % WORD_BYTES
    if missing:
        data = torch.cat([data, data.new_zeros(missing)])
    if data.data_ptr() % WORD_BYTES:
        data = data.clone()
    words = data.view(torch.int32)
    weights = torch.from_numpy(_WEIGHTS).to(words.device)
    found = []
    for start in range(0, words.numel(), DEVICE_CHUNK_WORDS):
        chunk = words[start : start + DEVICE_CHUNK_WORDS].to(torch.int64)
        rows = torch.nn.functional.pad(chunk, (0, -chunk.numel() % CHUNK_WORDS)).view(-1, CHUNK_WORDS)
        found.append(torch.stack([rows.sum(1), (rows * weights).sum(1)], 1))
    return [(plain, weighted) for plain, weighted in torch.cat(found).tolist()] if found else []
