from __future__ import annotations

from steadytrain.statistics.rank_rows import ranks_named


def test_ranks_are_listed_in_short() -> None:
    assert ranks_named([]) == "no rank"
    assert ranks_named([3]) == "rank 3"
    assert ranks_named([0, 1, 3]) == "ranks 0, 1 and 3"
    assert ranks_named(range(64)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more"
