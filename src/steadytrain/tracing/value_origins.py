"""Where a non-finite value came from: the records of operations that made or carried one, and who holds it now.

A *birth* is an operation whose result holds a kind of non-finite value that none of its inputs held. Values travel
by storage, so a view or an in-place write is the same value. A storage is known by a weak reference: it keeps the
memory free and the identity taken, so that a reused address is never mistaken for the tensor that was there before.
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
"""Origins remembered per storage and kind; only buffers written slice by slice have more than one."""

PRUNE_FROM = 4096
"""Storages remembered before the dead ones are looked for; after that at every doubling."""


@dataclass(frozen=True, eq=False)
class Record:
    """One operation (or ``source``: one tensor from before the run) that left non-finite values of one kind.

    ``born`` are births, ``constant`` those that somebody put there on purpose, the rest carried what ``parents``
    made. ``contracted`` is set where the value began as an overflow of a matrix product. ``number`` counts the
    operations of the traced run, from 0; None for a source.
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
    """Which storages hold non-finite values, and which records put them there."""

    by_storage: dict[int, _Holding] = field(default_factory=dict)
    prune_at: int = PRUNE_FROM

    def __len__(self) -> int:
        return len(self.by_storage)

    def origins(self, tensor: torch.Tensor, kind: Kinds) -> tuple[Record, ...]:
        """Who put values of ``kind`` into the storage of ``tensor``; empty if nobody was seen doing it."""
        storage = storage_of(tensor)
        holding = None if storage is None else self.by_storage.get(STORAGE_ADDRESS.of(storage))
        return () if holding is None else holding.origins.get(kind, ())

    def write(self, tensor: torch.Tensor, records: Iterable[Record]) -> None:
        """``tensor`` was written and now holds what ``records`` say; elsewhere in its storage the old stays."""
        storage = storage_of(tensor)
        if storage is None:
            return
        if fills_its_storage(tensor):
            self.by_storage.pop(STORAGE_ADDRESS.of(storage), None)
        self.add(tensor, records)

    def add(self, tensor: torch.Tensor, records: Iterable[Record]) -> None:
        """``records`` turn out to be behind values that ``tensor`` already holds."""
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
    """Something that must be finite and is not: the loss or a gradient, and who is behind its values."""

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
    """The shortest line of records from ``culprit`` to ``target``, both ends included."""
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
