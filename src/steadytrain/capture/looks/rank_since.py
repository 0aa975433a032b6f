"""Since when something of a rank differs from the other ranks, and what is usual among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

NAMES_MAX = 3

ALL = -1
"""Stands for a rank where no two ranks have the same."""


class Since:
    """Since when, without an interruption, something of a rank differs. The keys are ``(rank, name)``."""

    def __init__(self) -> None:
        self.first: dict[tuple[int, str], int] = {}

    def see(self, step: int, apart: Iterable[tuple[int, str]]) -> None:
        """All that differs in ``step``."""
        self.first = {key: self.first.get(key, step) for key in apart}

    def rows(self, measure: str, ranks: Iterable[int]) -> dict[str, float]:
        """The rows of ``measure``: of each rank, and of its tensors where only some differ."""
        rows = {f"{measure}:{rank}": float(self.first[rank, ""]) for rank in ranks if (rank, "") in self.first}
        for rank in ranks:
            named = [(name, step) for (whose, name), step in self.first.items() if whose == rank and name]
            if len(named) <= NAMES_MAX:
                rows |= {f"{measure}:{rank} {name}": float(step) for name, step in named}
        return rows

    @property
    def unlike(self) -> float:
        """Since when no two ranks have had the same."""
        return float(self.first.get((ALL, ""), 0))


def usual_of(values: Mapping[int, Any]) -> Any:
    """What most ranks have; what the first rank has where no value has a majority."""
    value, count = Counter(values.values()).most_common(1)[0]
    return value if 2 * count > len(values) else values[min(values)]
