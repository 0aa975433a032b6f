"""The origins of non-finite values: records of the operations that made or carried one, and the storages that hold it.

A *birth* is an operation whose result holds a kind of non-finite value that none of its inputs held. Values are
followed by storage, so a view or an in-place write is the same value. Storages are known by weak references: they do
not keep the memory, but reserve the identity, so a reused address is never mistaken for an earlier tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from steadytrain.core.incident import OperandRange
from steadytrain.core.torch_private import STORAGE_ADDRESS
from steadytrain.tracing.places import Place
from steadytrain.tracing.tensor_summary import EACH_KIND, Kinds, fills_its_storage, storage_of

ORIGINS_MAX = 64
"""Bound on origins for each storage and kind. Only buffers written slice by slice have more than one."""

PRUNE_FROM = 4096
"""Dead storages are pruned from this number on, then at every doubling."""


@dataclass(frozen=True, eq=False)
class Record:
    """One operation that left non-finite values of one kind, or (``source``) one tensor from before the run.

    ``born`` marks births, ``constant`` marks values set on purpose; all others carried the values of ``parents``.
    ``contracted``: the value began as an overflow of a matrix product. ``number`` counts the operations of the traced
    run
    from 0; None for a source.
    """

    order: int
    kind: Kinds
    operation: str
    born: bool = False
    constant: bool = False
    contracted: bool = False
    source: str | None = None
    parents: tuple[Record, ...] = ()
    place: Place | None = None
    inputs: tuple[OperandRange, ...] = ()
    number: int | None = None


@dataclass
class _Holding:
    storage: Any  # a StorageWeakRef, which torch leaves untyped
    origins: dict[Kinds, tuple[Record, ...]] = field(default_factory=dict)


@dataclass
class Holdings:
    """Which storages hold non-finite values, and the records that explain them."""

    by_storage: dict[int, _Holding] = field(default_factory=dict)
    prune_at: int = PRUNE_FROM

    def __len__(self) -> int:
        return len(self.by_storage)

    def origins(self, tensor: torch.Tensor, kind: Kinds) -> tuple[Record, ...]:
        """The records that put values of ``kind`` into the storage of ``tensor``; empty if unknown."""
        storage = storage_of(tensor)
        holding = None if storage is None else self.by_storage.get(STORAGE_ADDRESS.of(storage))
        return () if holding is None else holding.origins.get(kind, ())

    def write(self, tensor: torch.Tensor, records: Iterable[Record]) -> None:
        """Registers that ``tensor`` was written with the values of ``records``. The rest of its storage keeps its
        records."""
        storage = storage_of(tensor)
        if storage is None:
            return
        if fills_its_storage(tensor):
            self.by_storage.pop(STORAGE_ADDRESS.of(storage), None)
        self.add(tensor, records)

    def add(self, tensor: torch.Tensor, records: Iterable[Record]) -> None:
        """Adds ``records`` as explanation of values that ``tensor`` already holds."""
        storage = storage_of(tensor)
        if storage is None:
            return
        for record in records:
            holding = self.by_storage.setdefault(STORAGE_ADDRESS.of(storage), _Holding(_weak(storage)))
            holding.origins[record.kind] = (*holding.origins.get(record.kind, ()), record)[:ORIGINS_MAX]
        if len(self.by_storage) >= self.prune_at:
            self._prune()

    def _prune(self) -> None:
        self.by_storage = {
            address: holding for address, holding in self.by_storage.items() if not holding.storage.expired()
        }
        self.prune_at = max(PRUNE_FROM, 2 * len(self.by_storage))


@dataclass(frozen=True)
class Target:
    """A loss or gradient that must be finite and is not, with the records behind its values."""

    name: str
    records: tuple[Record, ...]


def ancestry(targets: Sequence[Target]) -> dict[Record, Target]:
    """Every record behind a target, with the first target that it reached."""
    reached: dict[Record, Target] = {}
    for target in targets:
        waiting = deque(target.records)
        while waiting:
            record = waiting.popleft()
            if record not in reached:
                reached[record] = target
                waiting.extend(record.parents)
    return reached


def path_to(culprit: Record, target: Target) -> tuple[Record, ...]:
    """The shortest path of records from ``culprit`` to ``target``, both included."""
    came_from: dict[Record, Record | None] = dict.fromkeys(target.records)
    waiting = deque(target.records)
    while waiting:
        record = waiting.popleft()
        if record is culprit:
            break
        for parent in record.parents:
            if parent not in came_from:
                came_from[parent] = record
                waiting.append(parent)
    path: list[Record] = []
    step: Record | None = culprit
    while step is not None:
        path.append(step)
        step = came_from.get(step)
    return tuple(path)


def _weak(storage: torch.UntypedStorage) -> Any:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def each_kind(kinds: Kinds) -> tuple[Kinds, ...]:
    """The single kinds in ``kinds``, NaN first."""
    return tuple(kind for kind in EACH_KIND if kind in kinds)
