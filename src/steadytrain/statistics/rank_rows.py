"""Rows of the table ``ranks``: in what the ranks of a run differ at the newest comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steadytrain.core.model import Window


@dataclass(frozen=True)
class RankRows:
    """The newest value of each row. A rank is its number as text; ``all`` and ``usual`` stand for several."""

    values: dict[tuple[str, str], float]

    def of_all(self, measure: str) -> float:
        """The value of a measure over all ranks; 0 if there is none."""
        return self.values.get((measure, "all"), 0.0)

    def of(self, measure: str, rank: str) -> float:
        """The value of a measure of one rank; 0 if there is none."""
        return self.values.get((measure, rank), 0.0)

    def ranks(self, measure: str) -> Iterator[tuple[str, float]]:
        """The ranks for which a measure is not 0."""
        for (name, place), value in self.values.items():
            if name == measure and place.isdigit() and value:
                yield place, value

    def names(self, measure: str, rank: str) -> list[str]:
        """What of the rank has a measure that is not 0: names of tensors or settings."""
        lead = f"{rank} "
        return [
            place.removeprefix(lead)
            for (name, place), value in self.values.items()
            if name == measure and place.startswith(lead) and value
        ]

    def others(self, *ranks: str) -> str:
        """How the ranks are called that ``ranks`` are compared with."""
        beside = [one for rank in ranks if (one := self.values.get(("beside", rank))) is not None]
        if ranks and len(beside) == len(ranks):
            return f"rank {beside[0]:.0f}" if len(beside) == 1 and beside[0] != SEVERAL else OTHER_HOLDERS
        rest = {str(rank) for rank in range(int(self.of_all("ranks")))} - set(ranks)
        return f"rank {rest.pop()}" if len(rest) == 1 else "the other ranks"

    def first(self, measure: str, rank: str) -> float:
        """The first step in which the rate or scale (``measure``) of a rank differed, even if it does no more; or 0."""
        found = (self.of(f"{measure}-first", rank), self.of(f"{measure}-apart", rank))
        return min(filter(None, found), default=0.0)

    def names_of(self, measure: str, ranks: Sequence[str]) -> list[str]:
        """What of ``ranks`` has the measure; nothing if it is more than a few names, or all of a rank."""
        named = [self.names(measure, rank) for rank in ranks]
        every = list(dict.fromkeys(name for names in named for name in names))
        return every if all(named) and len(every) <= NAMES_MAX else []

    def pairs(self, measure: str) -> Iterator[tuple[str, str, float]]:
        """The pairs of ranks that have a measure: the later rank, the earlier one, and the value."""
        for (name, place), value in self.values.items():
            later, _, earlier = place.partition(" ")
            if name == measure and later.isdigit() and earlier.isdigit() and value:
                yield later, earlier, value

    @property
    def is_one_model(self) -> bool:
        """Whether the ranks train replicas of one model: wrapped for that, or with equal gradients in most steps."""
        shared = self.of_all("gradients-together")
        return bool(self.of_all("wrapped")) or (shared >= SHARED_MIN and 2 * shared >= self.of_all("compared"))


SEVERAL = -1.0
OTHER_HOLDERS = "the other ranks that hold it"
SHARED_MIN = 4
NAMES_MAX = 3
RANKS_NAMED_MAX = 8


def ranks_named(ranks: Sequence[str] | Sequence[int]) -> str:
    """Such as ``rank 2``, ``ranks 1 and 3`` or ``ranks 1, 2, 3, 4, 5, 6, 7, 8 and 4 more``; of none ``no rank``."""
    if not ranks:
        return "no rank"
    shown, more = list(map(str, ranks[:RANKS_NAMED_MAX])), len(ranks) - RANKS_NAMED_MAX
    last = f"{more} more" if more > 0 else shown.pop()
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(shown)}{' and ' if shown else ''}{last}"


def rank_rows(window: Window) -> RankRows:
    """The newest reading; without rows if the run has one process."""
    table = window.tables.get("ranks")
    if table is None or not len(table):
        return RankRows({})
    newest = dict(zip(table.rows, table.values[-1, :, 0].tolist(), strict=True))
    return RankRows({(row.partition(":")[0], row.partition(":")[2]): v for row, v in newest.items() if v == v})
