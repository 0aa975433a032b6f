"""All ranks get the same batches."""

from __future__ import annotations

from rank_windows import alone, ranked
from steadytrain.core.model import Symptom
from steadytrain.detectors.same_data_on_ranks import SameDataOnRanks
from steadytrain.testing import newest

HEALTHY = (alone(), ranked(), ranked(same_inputs__all=3))
SICK = (ranked(same_inputs__all=4),)


def found(**rows: float) -> Symptom | None:
    return newest(SameDataOnRanks(), ranked(**rows))


def test_quiet() -> None:
    assert [SameDataOnRanks().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_same_data() -> None:
    for rows in ({"same_inputs__all": 4}, {"same_losses__all": 16}):
        symptom = found(**rows)
        assert symptom is not None
        assert symptom.severity == "warning"
    assert found(same_inputs__all=3, same_losses__all=15) is None
    assert found(same_inputs__all=9, sharded__all=1) is None


def test_some_ranks_with_the_same_data_are_named() -> None:
    pair = found(ranks__all=4, same_inputs__3___1=5)
    assert pair is not None
    assert pair.message.startswith("ranks 1 and 3 train on the same batches: ")
    three = found(ranks__all=4, same_losses__2___0=16, same_inputs__3___0=5)
    assert three is not None
    assert "ranks 0, 3 and 2 train on the same batches" in three.message
    nodes = found(ranks__all=4, same_inputs__2___0=5, same_inputs__3___1=5)
    assert nodes is not None
    assert nodes.message.startswith("ranks 0 and 2, ranks 1 and 3, each of them together, train on the same batches")


def test_ranks_that_get_the_same_data_on_purpose() -> None:
    assert found(ranks__all=4, same_inputs__3___1=4, same_losses__3___1=15) is None  # chance
    assert found(ranks__all=4, same_inputs__3___1=9, parted__all=1) is None  # tensor parallel in a smaller group
    assert found(ranks__all=4, same_inputs__3___1=9, weights_together__all=0) is None
    assert found(ranks__all=4, same_inputs__3___1=9, sharded__all=1) is None
