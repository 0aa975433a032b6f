"""The loss of one rank is many times that of the others."""

from __future__ import annotations

from rank_windows import alone, ranked
from steadytrain.core.model import Symptom
from steadytrain.detectors.rank_loss import RankLoss
from steadytrain.testing import newest

HEALTHY = (alone(), ranked(), ranked(loss_ratio__1=5, loss_ratio_since__1=11))
SICK = (ranked(loss_ratio__1=64, loss_ratio_since__1=11),)


def found(**rows: float) -> Symptom | None:
    return newest(RankLoss(), ranked(**rows))


def test_quiet() -> None:
    assert [RankLoss().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_loss_many_times_as_large() -> None:
    symptom = found(loss_ratio__1=64, loss_ratio_since__1=11)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 11)
    assert symptom.message == "the loss of rank 1 is about 64 times that of rank 0, step after step"
    assert found(loss_ratio__1=5, loss_ratio_since__1=11) is None
    assert found(loss_ratio__1=64, wrapped__all=0, gradients_together__all=0) is None
