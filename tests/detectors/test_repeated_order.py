from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.repeated_order import RepeatedOrder
from steadytrain.testing import newest


def ordered(passes: float, shuffles: float) -> Window:
    return looked(same_order__DistributedSampler=[NAN, NAN, passes], shuffles__DistributedSampler=[NAN, NAN, shuffles])


BY_LENGTH = ordered(2.0, 0.0)
QUIET = (looked(), ordered(NAN, NAN))
HEALTHY = (*QUIET, BY_LENGTH)
CYCLED = looked(cycled_batches__RandomSampler=[NAN] * 5 + [8.0])
SICK = (ordered(2.0, 1.0), CYCLED)


def test_quiet() -> None:
    assert [RepeatedOrder().check(window) for window in QUIET] == [()] * len(QUIET)


def test_the_sampler_is_named() -> None:
    symptom = newest(RepeatedOrder(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 3)
    assert symptom.message == "DistributedSampler drew the same samples in the same order in 2 passes in a row"


def test_an_order_that_may_be_meant_is_a_note() -> None:
    symptom = newest(RepeatedOrder(), BY_LENGTH)
    assert symptom is not None
    assert symptom.severity == "note"


def test_a_cycle_of_the_first_batches() -> None:
    symptom = newest(RepeatedOrder(), CYCLED)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 16)
    assert symptom.message == "the batches that RandomSampler drew first come again in their order, without the loader"
