"""Compares the digests of parameters and buffers among the ranks that should hold the same ones.

Not here: the other records of the ranks (``rank_comparison``), and which ranks hold the same (``replica_groups``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from steadytrain.capture.looks.rank_records import Readings, Value
from steadytrain.capture.looks.rank_since import ALL, Since, usual_of
from steadytrain.capture.looks.replica_digests import BUFFER

NAMES_MAX = 6
CHANGES_MIN = 2
"""Values that all ranks of a group had, one after the other, before a tensor that may be one rank's own counts as one
that they hold together."""

CONSTANT_MIN = 4
"""Digests in a row without a change after which a buffer counts as constant."""

SEVERAL = -1
"""Stands for the rank that a rank is compared with, where these are several."""

_Bits: TypeAlias = tuple[float, float]
_Keys: TypeAlias = tuple[str, int]


@dataclass
class _Together:
    """What all ranks of a group had at the digests so far, while they agreed."""

    value: _Bits | None = None
    changes: int = 0
    unchanged: int = 0

    def agreed(self, value: _Bits) -> None:
        self.unchanged = self.unchanged + 1 if value == self.value else 1
        self.changes += value != self.value
        self.value = value

    def is_shared(self, values: Mapping[int, _Bits]) -> bool:
        """Whether ranks that differ now should agree: they did while the value changed, or one that never changed is
        another one on some of them only."""
        constant = self.changes == 1 and self.unchanged >= CONSTANT_MIN and self.value in values.values()
        return self.changes >= CHANGES_MIN or constant


@dataclass
class ReplicaComparison:
    """Serves one stream. ``weights`` and ``buffers`` have since when which rank differs; ``is_split`` whether the model
    is split over a mesh, so that gradients are not compared; ``groups`` of each parameter the group of all ranks, or of
    each rank."""

    weights: Since = field(default_factory=Since)
    buffers: Since = field(default_factory=Since)
    equal_at: int = 0
    is_split: bool = False
    groups: dict[str, int | dict[int, int]] = field(default_factory=dict)
    _together: dict[_Keys, _Together] = field(default_factory=dict)
    _beside: dict[int, int] = field(default_factory=dict)
    _ranks: int = 0
    _order: dict[str, int] = field(default_factory=dict)
    _buffers_before: set[tuple[int, str]] = field(default_factory=set)

    def see(self, step: int, by_rank: Mapping[int, Readings]) -> bool:
        """The digests of all ranks before the update of ``step``, without rows that are no tensor. Returns whether
        parameters were compared and all were equal."""
        self._ranks, self._beside = len(by_rank), {}
        self._order = {name: at for at, name in enumerate(next(iter(by_rank.values())).rows)}
        equal, others = _alike(by_rank)
        for (name, group), value in equal.items():
            if group < 0:
                self._together.setdefault((name, group), _Together()).agreed(value)
        self.groups = {name: group for name, group in equal if not name.startswith(BUFFER)}
        measured = bool(self.groups)
        apart: dict[int, list[str]] = {}
        of_buffers: set[tuple[int, str]] = set()
        unlike = False
        for (name, group), values in others.items():
            odd = self._odd(name, group, values) if len(values) > 1 else []
            if name.startswith(BUFFER):
                of_buffers |= {(rank, name.removeprefix(BUFFER)) for rank in odd}
                continue
            self._keep_group(name, group, values)
            measured = measured or len(values) > 1
            for rank in odd:
                apart.setdefault(rank, []).append(name)
            unlike = unlike or (bool(odd) and len(set(values.values())) == len(by_rank) > 2)
        self.is_split = any(group % 2 for _, group in [*equal, *others])
        every = [(ALL, "")] if unlike else []
        self.weights.see(step, [*every, *((rank, name) for rank, names in apart.items() for name in ("", *names))])
        self._see_buffers(step, of_buffers)
        if measured and not apart:
            self.equal_at = step
        return measured and not apart

    def _see_buffers(self, step: int, apart: set[tuple[int, str]]) -> None:
        """Those that differ at two digests in a row: a wrapper may send them before the next forward."""
        lasting = sorted(apart & self._buffers_before)
        self._buffers_before = apart
        self.buffers.see(step, [*((rank, "") for rank in sorted({rank for rank, _ in lasting})), *lasting])

    def _keep_group(self, name: str, group: int, ranks: Iterable[int]) -> None:
        of_ranks = self.groups.setdefault(name, {})
        if isinstance(of_ranks, dict):
            of_ranks.update(dict.fromkeys(ranks, group))

    def _odd(self, name: str, group: int, values: Mapping[int, _Bits]) -> list[int]:
        """The ranks of a group that do not have what most of it have."""
        usual = usual_of(values)
        together = self._together.setdefault((name, group), _Together()) if group < 0 else None
        odd = [rank for rank, value in values.items() if value != usual]
        if not odd:
            if together is not None:
                together.agreed(usual)
            return []
        if together is not None and not together.is_shared(values):
            return []
        if len(values) < self._ranks:
            for rank in odd:
                self._beside[rank] = next(one for one in values if one != rank) if len(values) == 2 else SEVERAL
        return odd

    def rows(self, ranks: Iterable[int]) -> dict[str, float]:
        """The rows of all ranks."""
        known = list(ranks)
        rows = self.weights.rows("weights-apart", known) | self.buffers.rows("buffers-apart", known)
        rows |= {f"beside:{rank}": float(one) for rank, one in self._beside.items()}
        for rank in known if self.is_split else ():
            named = [(step, name) for (whose, name), step in self.weights.first.items() if whose == rank and name]
            named.sort(key=lambda one: (one[0], self._order.get(one[1], len(self._order))))
            if named:
                rows[f"weights-count:{rank}"] = float(len(named))
                rows |= {f"weights-apart:{rank} {name}": float(step) for step, name in named[:NAMES_MAX]}
        return rows

    def of_group(self, name: str, values: Mapping[int, Value | None]) -> list[Mapping[int, Value | None]]:
        """The values of the ranks, apart by the group that holds a parameter; none if it may be a rank's own."""
        groups = self.groups.get(name, 1)
        if isinstance(groups, int):
            return [values] if groups > 0 else []
        found: dict[int, dict[int, Value | None]] = {}
        for rank, value in values.items():
            if (group := groups.get(rank, 0)) > 0:
                found.setdefault(group, {})[rank] = value
        return [one for one in found.values() if len(one) > 1]


def _alike(by_rank: Mapping[int, Readings]) -> tuple[dict[_Keys, _Bits], dict[_Keys, dict[int, _Bits]]]:
    """By name and group the digest of the tensors of which all ranks have the same one, and of the others the digest of
    each rank that has one."""
    first, *others = by_rank.values()
    equal: dict[_Keys, _Bits] = {}
    if all(one.rows == first.rows for one in others):
        same: NDArray[np.bool_] = np.ones(len(first.rows), np.bool_)
        for one in others:
            same &= np.all(one.values == first.values, axis=1)
        found = [(row, at) for row, at, alike in zip(first.rows, first.values.tolist(), same, strict=True) if alike]
        equal = {(name, int(group)): (float(high), float(low)) for name, (high, low, group) in found}
    done = {name for name, _ in equal}
    held: dict[_Keys, dict[int, _Bits]] = {}
    for rank, one in by_rank.items():
        for name, (high, low, group) in zip(one.rows, one.values.tolist(), strict=True):
            if not math.isnan(high) and name not in done:
                held.setdefault((name, int(group)), {})[rank] = (high, low)
    return equal, held
