"""Memory for one copy of a state, made once and written over: into new pages copying takes four times as long.

Tensors here have the names of a snapshot's. All copying is exact; of a tensor in pieces, so that it can be left off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.incident.freeze import savable
from steadytrain.capture.snapshots.digests import bytes_of, plain_values
from steadytrain.capture.snapshots.safetensors_writer import PIECE_BYTES, GivenUp

MEMORY_SHARE = 1 / 16
"""Of the memory that is available, the most that a slot may take."""


class StateBuffer:
    """Written by one thread at a time; the caller sees to that."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    @property
    def memory_bytes(self) -> int:
        return size_bytes(self._tensors.copy().values())

    def has(self, name: str, tensor: Tensor) -> bool:
        """Whether there is memory for ``tensor``, of any device."""
        kept = self._tensors.get(name)
        return kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype

    def has_all(self, tensors: Mapping[str, Tensor]) -> bool:
        return all(self.has(name, tensor) for name, tensor in tensors.items())

    def may_take(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether what is missing for ``tensors`` is little beside the memory that is available."""
        missing = size_bytes(tensor for name, tensor in tensors.items() if not self.has(name, tensor))
        return not missing or missing + self.memory_bytes <= MEMORY_SHARE * available_bytes()

    def copied(self, name: str, tensor: Tensor) -> Tensor:
        """A copy of ``tensor`` on the host, made by torch with the threads that it has."""
        if self.has(name, tensor):
            with torch.no_grad():
                self._tensors[name].copy_(tensor)
        else:
            self._tensors[name] = savable(tensor)
        return self._tensors[name]

    def copied_by_pieces(self, name: str, tensor: Tensor, *, go_on: Callable[[], bool]) -> Tensor:
        """The same of a tensor on the host for a thread beside training: without torch's threads, which it would share.

        Raises:
            GivenUp: ``go_on`` said no. The memory stays.
        """
        source = plain_values(tensor)
        if not self.has(name, tensor):
            self._tensors[name] = torch.empty(source.shape, dtype=source.dtype)
        kept = self._tensors[name]
        if source.numel() <= 1:  # a view of its bytes would be one of a copy
            kept.copy_(source)
            return kept
        into, out_of = bytes_of(kept), bytes_of(source)
        for start in range(0, len(into), PIECE_BYTES):
            if not go_on():
                raise GivenUp
            np.copyto(into[start : start + PIECE_BYTES], out_of[start : start + PIECE_BYTES])
        return kept

    def make(self, tensors: Mapping[str, Tensor]) -> None:
        """Memory for all of ``tensors`` that has been written once: zeros that nobody wrote are no memory yet."""
        for name, tensor in tensors.items():
            if not self.has(name, tensor):
                self._tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            bytes_of(self._tensors[name]).fill(0)


def size_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def available_bytes() -> int:
    """Memory of the host that can be had without swapping; 0 where that is not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return 0
