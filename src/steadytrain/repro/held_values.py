"""Values of a traced run that may be asked for afterwards: held by reference, copied only before they are overwritten.

A reference costs nothing but the memory that it keeps from being freed; a step's values are mostly alive until its
backward anyway. Beyond the bound all references are let go (``overflowed``). What an operation read that then broke is
copied by itself (:meth:`HeldValues.copy`) within a bound of its own: a fault of the forward never needs a second run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadytrain.core.torch_private import STORAGE_ADDRESS
from steadytrain.tracing.tensor_summary import has_own_dispatch

HELD_BYTES_MAX = 1 << 30
"""Storages referred to, and copies made of them, in one run."""

COPIED_BYTES_MAX = 256 << 20
"""Copies of what broken operations read; of a NaN that spreads through a backward the first are the ones that count."""


@dataclass(frozen=True)
class _Reference:
    """Below autograd an alias has a version of its own, so only a storage that was resized shows here."""

    alias: Tensor
    storage_bytes: int


class HeldValues:
    """Values by name. ``devices`` says where each was. With ``bounded`` False only what is needed is held at all."""

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
        """Hold the value that ``tensor`` has now."""
        if name in self or self.overflowed or not _is_plain(tensor):
            return
        storage = tensor.untyped_storage()
        if STORAGE_ADDRESS.of(storage) not in self._storages and not self._has_room(storage.nbytes()):
            return
        self._storages.add(STORAGE_ADDRESS.of(storage))
        self.devices[name] = tensor.device.type
        self._references[name] = _Reference(tensor.detach(), storage.nbytes())

    def overwritten(self, names: Iterable[str]) -> None:
        """Called before something writes where these values are: those that are held are copied."""
        for name in names:
            reference = self._references.pop(name, None)
            if reference is not None and _is_unchanged(reference) and self._has_room(reference.alias.nbytes):
                self._copies[name] = on_host(reference.alias)

    def copy(self, name: str, tensor: Tensor) -> None:
        """Keep a copy of a value that a broken operation read."""
        too_much = self._copied_bytes + tensor.nbytes > COPIED_BYTES_MAX
        if name in self._copies or too_much or not _is_plain(tensor):
            return
        self._copied_bytes += tensor.nbytes
        self.devices[name] = tensor.device.type
        self._copies[name] = on_host(tensor)

    def get(self, name: str) -> Tensor | None:
        """The value on the host; None where it was not held, or its memory was given back."""
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
    """A copy on the CPU, contiguous."""
    resolved = tensor.detach().resolve_conj().resolve_neg()
    return resolved.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _is_plain(tensor: Tensor) -> bool:
    if has_own_dispatch(type(tensor)) or tensor.layout != torch.strided:
        return False
    return not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)


def _is_unchanged(reference: _Reference) -> bool:
    return reference.alias.untyped_storage().nbytes() == reference.storage_bytes
