"""Names of layers as a page shows them: in model order, shortened, and merged to blocks if there are too many."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

LABEL_LENGTH_MAX = 34
DEPTH_MAX = 24

FEW = 4
"""Blocks are too few if they use less than this fraction (1 in 4) of the available rows."""

WHOLE_MODEL = "(whole model)"
"""Label of the model itself, whose module name is ""."""


@dataclass(frozen=True)
class Block:
    """Neighbouring layers that share a row or a heading: positions ``start`` to ``stop`` (exclusive)."""

    name: str
    start: int
    stop: int


def in_model_order(names: Sequence[str], known: Sequence[str] = ()) -> list[int]:
    """Positions that sort ``names`` as a printout of the model does.

    An optimizer lists parameters by group, weights before biases; modules come in the model's order. So each part of a
    dotted name is placed by its first occurrence in ``known`` (names of modules), else in ``names``.
    """
    seen: dict[str, int] = {}
    for name in (*known, *names):
        for prefix in _prefixes(name):
            seen.setdefault(prefix, len(seen))
    keys = [tuple(seen[prefix] for prefix in _prefixes(name)) for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)


def blocks(names: Sequence[str], count_max: int) -> list[Block]:
    """Group ``names``, in model order, into at most ``count_max`` blocks with a shared prefix, as small as possible.

    If the next longer prefix gives too many blocks and this one gives only a few, neighbours are merged instead.
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
    """The dotted prefix that all names share, with its last dot."""
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
    """``names`` without their shared prefix, with long ones cut in the middle."""
    common = shared_beginning(names)
    return [_cut(name[len(common) :] or name, length_max) for name in names]


def module_of(parameter: str) -> str:
    """The module that holds a parameter."""
    return parameter.rpartition(".")[0] or WHOLE_MODEL


def _sharing(names: Sequence[str]) -> list[Block]:
    """Blocks of neighbours with the same name."""
    runs = [(name, sum(1 for _ in same)) for name, same in itertools.groupby(names)]
    stops = list(itertools.accumulate(length for _, length in runs))
    return [Block(name, stop - length, stop) for (name, length), stop in zip(runs, stops, strict=True)]


def _joined(neighbours: Sequence[Block]) -> Block:
    """Join blocks: ``model.0``, ``model.1`` and ``model.2`` become ``model.0 … 2``."""
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
