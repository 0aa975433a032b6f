"""A rank with fewer batches than the others."""

from __future__ import annotations

from rank_windows import alone, ranked
from steadytrain.detectors.uneven_ranks import UnevenRanks
from steadytrain.testing import newest

HEALTHY = (alone(), ranked(), ranked(loss_ratio__1=5, loss_ratio_since__1=11))
SICK = (ranked(ended_after__2=40, went_on__2=41),)


def test_quiet() -> None:
    assert [UnevenRanks().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_rank_that_ended_first_is_named() -> None:
    symptom = newest(UnevenRanks(), ranked(ended_after__2=40, went_on__2=41))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.numbers["rank"]) == ("critical", 40, 2.0)
    assert symptom.message == (
        "rank 2 ended after its 40 steps while others went on to step 41: an uneven number of batches"
    )
