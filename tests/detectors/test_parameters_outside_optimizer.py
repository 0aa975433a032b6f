from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.parameters_outside_optimizer import ParametersOutsideOptimizer
from steadytrain.testing import newest

FORGOTTEN = looked(outside_optimizer__head=[NAN, 0.8], outside_share__model=[NAN, 0.05])
STALE = looked(outside_optimizer__head=[NAN, 0.0], outside_share__model=[NAN, 0.9], stranger__old=[NAN, 1.0])
HEAD_ALONE = looked(outside_optimizer__features=[NAN, 0.0], outside_share__model=[NAN, 0.3])
PROMPT_ALONE = looked(outside_optimizer__layers=[NAN, 1.0], outside_share__model=[NAN, 0.99])
HIDDEN = looked(
    outside_optimizer__experts=[NAN, 0.0], outside_share__model=[NAN, 0.98], **{"unregistered__Moe.experts": [NAN, 6.0]}
)
TWINS = looked(
    outside_optimizer__generator=[NAN, 0.0], outside_share__model=[NAN, 0.7], twin_optimizer__model=[NAN, 1.0]
)
QUIET = (looked(), looked(carried_over__gradients=[0.0]))
HEALTHY = (*QUIET, HEAD_ALONE, PROMPT_ALONE)
BY_DECAY = looked(outside_optimizer__gru=[NAN, 0.5], outside_share__model=[NAN, 0.93], decay_groups__model=[NAN, 1.0])
SICK = (FORGOTTEN, STALE, HIDDEN, TWINS, BY_DECAY)


def test_quiet() -> None:
    assert [ParametersOutsideOptimizer().check(window) for window in QUIET] == [()] * len(QUIET)


def test_a_layer_behind_trained_ones() -> None:
    symptom = newest(ParametersOutsideOptimizer(), FORGOTTEN)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.tensors) == ("warning", 2, ("head",))
    assert symptom.message.startswith("head (5% of what the loss reaches) get a gradient and no optimizer holds them")


def test_tensors_that_no_module_has() -> None:
    symptom = newest(ParametersOutsideOptimizer(), STALE)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.endswith("it holds 1 tensors that no module has")


def test_two_optimizers_of_one_network() -> None:
    symptom = newest(ParametersOutsideOptimizer(), TWINS)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.endswith("another optimizer holds the same parameters as this one")


def test_what_may_be_meant_is_a_note() -> None:
    for window in (HEAD_ALONE, PROMPT_ALONE):
        symptom = newest(ParametersOutsideOptimizer(), window)
        assert symptom is not None
        assert symptom.severity == "note"


def test_modules_in_a_plain_list() -> None:
    symptom = newest(ParametersOutsideOptimizer(), HIDDEN)
    assert symptom is not None
    assert (symptom.severity, symptom.numbers["unregistered"]) == ("warning", 1)
    assert symptom.message.endswith("so they stay as they are; Moe.experts holds modules without registering them")


def test_groups_by_weight_decay_that_leave_a_layer_out() -> None:
    symptom = newest(ParametersOutsideOptimizer(), BY_DECAY)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.endswith("; its groups sort parameters into those with and without weight decay")
