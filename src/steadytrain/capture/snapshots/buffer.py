"""Memory for one copy of a state, allocated once and reused: a copy into new pages takes four times as long.

Tensors here have the same names as in a snapshot. All copies are exact. A tensor is copied in pieces, so the copy can
be abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.incident.freeze import savable
from steadytrain.capture.snapshots.digests import bytes_of, plain_values
from steadytrain.capture.snapshots.safetensors_writer import PIECE_BYTES, GivenUp
from steadytrain.core.own_errors import own

MEMORY_SHARE = 1 / 16
"""The largest share of the available memory that a slot may take."""


class StateBuffer:
    """The buffer for one state. The caller ensures that only one thread writes at a time."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    @property
    def memory_bytes(self) -> int:
        return size_bytes(self._tensors.copy().values())

    def has(self, name: str, tensor: Tensor) -> bool:
        """Whether the buffer has memory for ``tensor``, which may be on any device."""
        kept = self._tensors.get(name)
        return kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype

    def has_all(self, tensors: Mapping[str, Tensor]) -> bool:
        return all(self.has(name, tensor) for name, tensor in tensors.items())

    def may_take(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether the memory still missing for ``tensors`` is a small share of the available memory."""
        missing = size_bytes(tensor for name, tensor in tensors.items() if not self.has(name, tensor))
        return not missing or missing + self.memory_bytes <= MEMORY_SHARE * available_bytes()

    def copied(self, name: str, tensor: Tensor) -> Tensor:
        """A copy of ``tensor`` on the host, with torch's own threads."""
        if self.has(name, tensor):
            with torch.no_grad():
                self._tensors[name].copy_(tensor)
        else:
            self._tensors[name] = savable(tensor)
        return self._tensors[name]

    def copied_by_pieces(self, name: str, tensor: Tensor, *, go_on: Callable[[], bool]) -> Tensor:
        """The same for a host tensor, from a background thread: does not use torch's threads, which training needs.

        Raises:
            GivenUp: ``go_on`` returned False. The memory stays.
        """
        source = plain_values(tensor)
        if not self.has(name, tensor):
            self._tensors[name] = torch.empty(source.shape, dtype=source.dtype)
        kept = self._tensors[name]
        if source.numel() <= 1:  # a view of its bytes would be a view of a copy
            kept.copy_(source)
            return kept
        into, out_of = bytes_of(kept), bytes_of(source)
        for start in range(0, len(into), PIECE_BYTES):
            if not go_on():
                raise GivenUp
            np.copyto(into[start : start + PIECE_BYTES], out_of[start : start + PIECE_BYTES])
        return kept

    def make(self, tensors: Mapping[str, Tensor]) -> None:
        """Allocate memory for all of ``tensors`` and write it once: unwritten zeros have no physical memory yet."""
        for name, tensor in tensors.items():
            if not self.has(name, tensor):
                self._tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            bytes_of(self._tensors[name]).fill(0)


def size_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def available_bytes() -> int:
    """Host memory that is available without swapping, in bytes; 0 if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except own(OSError, ValueError, StopIteration):
        return 0
