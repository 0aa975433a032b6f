"""Values of a traced run for later use: held by reference, and copied only before they are overwritten.

A reference only keeps memory from being freed, and most values of a step live until its backward anyway. Beyond the
bound all references are dropped (``overflowed``). The inputs of broken operations are copied separately
(:meth:`HeldValues.copy`) with their own bound, so a fault in the forward never needs a second run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadytrain.core.torch_private import STORAGE_ADDRESS
from steadytrain.tracing.tensor_summary import has_own_dispatch

HELD_BYTES_MAX = 1 << 30
"""Bound on the referenced storages and their copies in one run."""

COPIED_BYTES_MAX = 256 << 20
"""Bound on copied inputs of broken operations. When a NaN spreads through a backward, the first ones count."""


@dataclass(frozen=True)
class _Reference:
    """Below autograd an alias has its own version counter, so only a resized storage is detected."""

    alias: Tensor
    storage_bytes: int


class HeldValues:
    """Values by name. ``devices`` maps names to device types. With ``bounded`` False only the needed values are
    held."""

    def __init__(self, *, bounded: bool) -> None:
        self.devices: dict[str, str] = {}
        self.overflowed = False
        self._bounded = bounded
        self._references: dict[str, _Reference] = {}
        self._copies: dict[str, Tensor] = {}
        self._storages: set[int] = set()
        self._held_bytes = 0
        self._copied_bytes = 0

    def __contains__(self, name: str) -> bool:
        return name in self._references or name in self._copies

    def __len__(self) -> int:
        return len(self._references.keys() | self._copies.keys())

    def refer(self, name: str, tensor: Tensor) -> None:
        """Holds the present value of ``tensor``."""
        if name in self or self.overflowed or not _is_plain(tensor):
            return
        storage = tensor.untyped_storage()
        if STORAGE_ADDRESS.of(storage) not in self._storages and not self._has_room(storage.nbytes()):
            return
        self._storages.add(STORAGE_ADDRESS.of(storage))
        self.devices[name] = tensor.device.type
        self._references[name] = _Reference(tensor.detach(), storage.nbytes())

    def overwritten(self, names: Iterable[str]) -> None:
        """Copies the held values among ``names``. Call it before their memory is overwritten."""
        for name in names:
            reference = self._references.pop(name, None)
            if reference is not None and _is_unchanged(reference) and self._has_room(reference.alias.nbytes):
                self._copies[name] = on_host(reference.alias)

    def copy(self, name: str, tensor: Tensor) -> None:
        """Copies a value that a broken operation read."""
        too_much = self._copied_bytes + tensor.nbytes > COPIED_BYTES_MAX
        if name in self._copies or too_much or not _is_plain(tensor):
            return
        self._copied_bytes += tensor.nbytes
        self.devices[name] = tensor.device.type
        self._copies[name] = on_host(tensor)

    def get(self, name: str) -> Tensor | None:
        """The value on the host; None if it was not held or its memory was freed."""
        if name in self._copies:
            return self._copies[name]
        reference = self._references.get(name)
        return None if reference is None or not _is_unchanged(reference) else on_host(reference.alias)

    def _has_room(self, size_bytes: int) -> bool:
        self._held_bytes += size_bytes
        if self._bounded and self._held_bytes > HELD_BYTES_MAX:
            self.overflowed = True
            self._references.clear()
            self._storages.clear()
        return not self.overflowed


def on_host(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU."""
    resolved = tensor.detach().resolve_conj().resolve_neg()
    return resolved.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _is_plain(tensor: Tensor) -> bool:
    if has_own_dispatch(type(tensor)) or tensor.layout != torch.strided:
        return False
    return not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def _is_unchanged(reference: _Reference) -> bool:
    return reference.alias.untyped_storage().nbytes() == reference.storage_bytes
