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
