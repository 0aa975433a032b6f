"""A rank updates with gradients that are not those of the others."""

from __future__ import annotations

from rank_windows import alone, ranked
from steadytrain.core.model import Symptom
from steadytrain.detectors.unshared_gradients import UnsharedGradients
from steadytrain.testing import newest

HEALTHY = (alone(), ranked(), ranked(gradients_apart__1=21, averaged__all=30))
SICK = (ranked(gradients_apart__1=21, weights_apart__1=33, weights_together__all=17),)


def found(**rows: float) -> Symptom | None:
    return newest(UnsharedGradients(), ranked(**rows))


def test_quiet() -> None:
    assert [UnsharedGradients().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_gradients_that_were_shared_and_no_longer_are() -> None:
    rows = {"gradients_apart__1": 21, "weights_apart__1": 33, "weights_together__all": 17}
    symptom = found(**rows)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("critical", 21)
    assert symptom.message.startswith("the gradients on rank 1 differ from rank 0 since step 21")
    named = found(**rows, gradients_apart__1___head=21)
    assert named is not None
    assert named.message.startswith("the gradients of head on rank 1 differ")
    assert found(**{**rows, "gradients_apart__1": 35}) is None  # a few steps
    assert found(**{**rows, "weights_apart__1": 0}) is None  # no digest since
    assert found(**{**rows, "weights_apart__1": 0, "compared__all": 44}) is not None
    many = found(**rows, ranks__all=4)
    assert many is not None
    assert "differ from the other ranks since" in many.message
    assert found(**{**rows, "averaged__all": 30}) is None  # averaged now and then


def test_gradients_that_were_never_shared() -> None:
    rows = {"wrapped__all": 0, "gradients_together__all": 0, "weights_together__all": 1, "gradients_apart__1": 1}
    assert found(**rows, weights_apart__1=2) is None  # they may train alone
    symptom = found(**rows, weights_apart__1=2, compared__all=64)
    assert symptom is not None
    assert symptom.severity == "warning"
    other_models = {**rows, "weights_together__all": 0, "weights_apart__1": 1, "compared__all": 900}
    assert found(**other_models) is None
