"""The tree of groups by which many ranks find their greatest value.

Gloo reduces in a ring, where the messages that follow each other grow with the number of ranks: 20,000 for 10,000 of
them. In a tree of small groups they grow with its logarithm. Not here: the collectives (``ranks``).
"""

from __future__ import annotations

FLAT_MAX = 16
"""Up to so many ranks are one group."""

MEMBERS_MAX = 8
"""Ranks of one group of a larger tree."""


def way_of(rank: int, ranks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The groups of ``ranks`` that ``rank`` reduces in, one after the other: up from its leaf to the last group that it
    is in, and down again. The first member of a group is in one of the next level; the root is gone through once."""
    up: list[tuple[int, ...]] = []
    level, root = ranks, False
    while len(level) > 1:
        size = _group_size(len(level))
        first = level.index(rank) // size * size
        members = level[first : first + size]
        if len(members) > 1:
            up.append(members)
            root = members == level
        if rank != members[0]:
            break
        level = level[::size]
    return [*up, *reversed(up[:-1] if root else up)]


def rounds(count: int) -> int:
    """Messages that follow each other where ``count`` ranks find their greatest value: each group is a ring, and all
    but the root are gone through twice."""
    sizes = []
    while count > 1:
        sizes.append(_group_size(count))
        count = -(-count // sizes[-1])
    return sum(2 * (size - 1) * (1 if at == len(sizes) - 1 else 2) for at, size in enumerate(sizes))


def _group_size(count: int) -> int:
    """Ranks of a group on a level of ``count``."""
    return MEMBERS_MAX if count > FLAT_MAX else count
