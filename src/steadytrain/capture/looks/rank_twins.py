"""Counts for how long pairs of ranks have had equal values while these changed: ranks that get the same data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

SHOWN_MIN = 2
"""A single equality may be chance."""


class RankTwins:
    """Serves one kind of value: inputs, or losses. A value that never changes is counted once."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], int] = {}
        self._before: Mapping[int, Hashable] = {}
        self._ranks = 0

    def see(self, values: Mapping[int, Hashable]) -> None:
        """The values of all ranks at one comparison; none if they are not to be compared there."""
        alike: dict[Hashable, list[int]] = {}
        for rank, value in values.items():
            alike.setdefault(value, []).append(rank)
        self._pairs = {
            (first, later): self._pairs.get((first, later), 0) + (value != self._before.get(first))
            for value, (first, *others) in alike.items()
            for later in others
        }
        self._before, self._ranks = dict(values), len(values)

    @property
    def of_all(self) -> int:
        """How often in a row all ranks had one value; 0 if not all have it now."""
        return min(self._pairs.values()) if self._ranks > 1 and len(self._one_group()) == self._ranks else 0

    def _one_group(self) -> set[int]:
        """The ranks that have the value of the first one."""
        first = next(iter(self._before))
        return {first, *(later for one, later in self._pairs if one == first)}

    def rows(self, measure: str) -> dict[str, float]:
        """A row ``MEASURE:RANK EARLIER`` for each pair."""
        return {
            f"{measure}:{later} {first}": float(count)
            for (first, later), count in self._pairs.items()
            if count >= SHOWN_MIN
        }
