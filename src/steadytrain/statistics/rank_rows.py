"""Rows of the table ``ranks``: in what the ranks of a run differ at the newest comparison."""

from __future__ import annotations

from collections.abc import Iterator
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

    def others(self, rank: str) -> str:
        """How the ranks are called that ``rank`` is compared with."""
        return "rank 0" if self.of_all("ranks") == 2 and rank != "0" else "the other ranks"

    @property
    def is_one_model(self) -> bool:
        """Whether the ranks train replicas of one model: wrapped for that, or with equal gradients in most steps."""
        shared = self.of_all("gradients-together")
        return bool(self.of_all("wrapped")) or (shared >= SHARED_MIN and 2 * shared >= self.of_all("compared"))


SHARED_MIN = 4


def rank_rows(window: Window) -> RankRows:
    """The newest reading; without rows if the run has one process."""
    table = window.tables.get("ranks")
    if table is None or not len(table):
        return RankRows({})
    newest = dict(zip(table.rows, table.values[-1, :, 0].tolist(), strict=True))
    return RankRows({(row.partition(":")[0], row.partition(":")[2]): v for row, v in newest.items() if v == v})
