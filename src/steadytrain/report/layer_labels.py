"""Names of layers as a page shows them: in the order of the model, shortened, and as blocks where they are too many."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

LABEL_LENGTH_MAX = 34
DEPTH_MAX = 24

FEW = 4
"""Blocks are few where less than this part of those that have room is used."""

WHOLE_MODEL = "(whole model)"
"""How the module is shown that is the model itself; its name is empty."""


@dataclass(frozen=True)
class Block:
    """Neighbouring layers that share a row or a heading: those at the positions ``start`` to ``stop`` (exclusive)."""

    name: str
    start: int
    stop: int


def in_model_order(names: Sequence[str], known: Sequence[str] = ()) -> list[int]:
    """Positions of ``names`` so that what belongs together stands together, as in a printout of the model.

    An optimizer lists parameters by group, weights before biases; modules are listed as the model has them. So each
    part of a dotted name comes where it comes first, in ``known`` (names of modules) or else in ``names``.
    """
    seen: dict[str, int] = {}
    for name in (*known, *names):
        for prefix in _prefixes(name):
            seen.setdefault(prefix, len(seen))
    keys = [tuple(seen[prefix] for prefix in _prefixes(name)) for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)


def blocks(names: Sequence[str], count_max: int) -> list[Block]:
    """``names``, in model order, as at most ``count_max`` blocks: the smallest that share the beginning of a name.

    Where a part more would give too many blocks and a part less a few large ones, neighbours are put together.
    """
    parts = [name.split(".", DEPTH_MAX) for name in names]
    too_many: list[Block] = []
    for depth in range(max(map(len, parts), default=0), 0, -1):
        found = _sharing([".".join(part[:depth]) for part in parts])
        if len(found) <= count_max:
            if not too_many or len(found) * FEW >= count_max:
                return found
            break
        too_many = found
    together = max(1, math.ceil(len(too_many) / count_max))
    return [_joined(too_many[start : start + together]) for start in range(0, len(too_many), together)]


def shared_beginning(names: Sequence[str]) -> str:
    """The dotted beginning that all names share, with its last dot."""
    named = [name for name in names if name != WHOLE_MODEL]
    if len(named) < 2:
        return ""
    shared = [
        pair[0]
        for pair in itertools.takewhile(
            lambda pair: len(set(pair)) == 1,
            zip(*(name.split(".", DEPTH_MAX)[:-1] for name in named), strict=False),
        )
    ]
    return "".join(f"{part}." for part in shared)


def shortened(names: Sequence[str], *, length_max: int = LABEL_LENGTH_MAX) -> list[str]:
    """``names`` without the beginning that all share, and cut in the middle where they are still long."""
    common = shared_beginning(names)
    return [_cut(name[len(common) :] or name, length_max) for name in names]


def module_of(parameter: str) -> str:
    """The module that holds a parameter."""
    return parameter.rpartition(".")[0] or WHOLE_MODEL


def _sharing(names: Sequence[str]) -> list[Block]:
    """Neighbours of the same name as blocks."""
    runs = [(name, sum(1 for _ in same)) for name, same in itertools.groupby(names)]
    stops = list(itertools.accumulate(length for _, length in runs))
    return [Block(name, stop - length, stop) for (name, length), stop in zip(runs, stops, strict=True)]


def _joined(neighbours: Sequence[Block]) -> Block:
    """``model.0``, ``model.1`` and ``model.2`` as ``model.0 … 2``."""
    first, last = neighbours[0], neighbours[-1]
    shared = shared_beginning([first.name, last.name])
    name = first.name if first is last else f"{first.name} … {last.name[len(shared) :]}"
    return Block(name, first.start, last.stop)


def _prefixes(name: str) -> list[str]:
    return list(itertools.accumulate(name.split(".", DEPTH_MAX), lambda before, part: f"{before}.{part}"))


def _cut(name: str, length_max: int) -> str:
    if len(name) <= length_max:
        return name
    tail = length_max // 2
    return f"{name[: length_max - tail - 1]}…{name[-tail:]}"
