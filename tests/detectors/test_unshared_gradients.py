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


def test_all_ranks_that_differ_are_named() -> None:
    rows = {"weights_together__all": 12, "ranks__all": 4}
    some = found(**rows, **{f"{what}_apart__{rank}": 13 for what in ("gradients", "weights") for rank in (1, 3)})
    assert some is not None
    assert some.message.startswith("the gradients on ranks 1 and 3 differ from the other ranks since step 13: the")
    each = {f"{what}_apart__{rank}": 13 for what in ("gradients", "weights") for rank in (1, 2, 3)}
    every = found(**rows, **each, gradients_unlike__all=13)
    assert every is not None
    assert every.message == (
        "the gradients differ on all 4 ranks since step 13: they are not shared, and the replicas become different "
        "models"
    )


def test_gradients_that_differ_because_the_loss_scale_does_are_reported_as_that() -> None:
    rows = {"gradients_apart__1": 21, "weights_apart__1": 33, "weights_together__all": 17}
    assert found(**rows, scale_apart__1=21) is None
    assert found(**rows, scale_apart__1=25) is not None
