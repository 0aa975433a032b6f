"""What the ranks recorded, compared while they trained, names the cause."""

from __future__ import annotations

import pytest
from test_signatures import case_of, first


@pytest.mark.parametrize(
    ("symptom", "name"),
    [
        ("diverged-replicas", "rank-divergence"),
        ("rank-settings", "rank-divergence"),
        ("unshared-gradients", "unsynchronized-gradients"),
        ("same-data-on-ranks", "repeated-data"),
    ],
)
def test_what_the_ranks_recorded_tells(symptom: str, name: str) -> None:
    facts = {"ranks": 2}
    assert first(case_of(facts, symptom)) == name
