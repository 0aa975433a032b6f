"""Digests among the ranks that hold the same part, and of tensors that may be a rank's own."""

from __future__ import annotations

import numpy as np

from steadytrain.capture.looks.rank_records import Readings
from steadytrain.capture.looks.replica_comparison import ReplicaComparison

ODD_GROUP, OTHER_GROUP, OWN = 3.0, 5.0, -2.0
Rows = dict[str, tuple[float, float]]


def reading(rows: Rows) -> Readings:
    """By name the digest and the group."""
    return Readings(tuple(rows), np.array([[value, 1.0, group] for value, group in rows.values()], np.float32))


def seen(*steps: list[Rows]) -> ReplicaComparison:
    """Each step has the rows of every rank."""
    compared = ReplicaComparison()
    for step, rows in enumerate(steps, start=1):
        compared.see(step, {rank: reading(one) for rank, one in enumerate(rows)})
    return compared


def test_a_part_is_compared_with_the_ranks_that_hold_it() -> None:
    def rows(of: float, group: float) -> Rows:
        return {"up": (of, group), "norm": (1.0, 7.0)}

    healthy = [rows(1, ODD_GROUP), rows(2, OTHER_GROUP), rows(1, ODD_GROUP), rows(2, OTHER_GROUP)]
    drifted = [*healthy[:3], rows(9, OTHER_GROUP)]
    found = seen(healthy, healthy)
    assert (found.rows(range(4)), found.equal_at, found.is_split) == ({}, 2, True)
    found = seen(healthy, drifted)
    assert found.rows(range(4)) == {
        "weights-apart:3": 2,
        "weights-apart:3 up": 2,
        "weights-count:3": 1,
        "beside:3": 1,
    }
    assert found.equal_at == 1


def test_the_first_of_many_names_are_kept() -> None:
    names = [f"layer{number}" for number in range(10)]
    rows = [{name: (float(rank), ODD_GROUP) for name in names} for rank in range(2)]
    found = seen([rows[0], rows[0]], rows).rows(range(2))
    assert [row.partition(" ")[2] for row in found if " " in row] == names[:6]
    assert found["weights-count:1"] == 10


def test_what_may_be_a_ranks_own_counts_once_the_ranks_had_it_in_common() -> None:
    def both(first: float, other: float) -> list[Rows]:
        return [
            {"=buffer mean": (first, OWN), "expert": (first, OWN)},
            {"=buffer mean": (other, OWN), "expert": (other, OWN)},
        ]

    assert seen(both(1, 1), both(2, 3), both(4, 5), both(6, 7)).rows(range(2)) == {}
    found = seen(both(1, 1), both(2, 2), both(3, 4), both(5, 6)).rows(range(2))
    assert found == {"weights-apart:1": 3, "weights-apart:1 expert": 3, "buffers-apart:1": 4, "buffers-apart:1 mean": 4}


def test_a_constant_buffer_that_changes_on_one_rank() -> None:
    def both(first: float, other: float) -> list[Rows]:
        return [{"=buffer mask": (first, OWN)}, {"=buffer mask": (other, OWN)}]

    steady = [both(1, 1)] * 4
    assert "buffers-apart:1 mask" in seen(*steady, both(1, 2), both(1, 2)).rows(range(2))
    assert seen(*steady, both(1, 2), both(1, 1)).rows(range(2)) == {}
    assert seen(*steady, both(2, 3), both(4, 5)).rows(range(2)) == {}  # statistics that are no longer frozen
