from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.shared_target import SharedTarget
from steadytrain.testing import newest

SICK = (
    looked(shared_copy__QNet=[NAN, NAN, 32.0]),
    looked(aliased_reference__train_py=[1.0]),
    looked(second_name__self=[NAN, 31.0]),
)
HEALTHY = (looked(), looked(shared_copy__QNet=[NAN, NAN, 8.0]))


def test_quiet() -> None:
    assert [SharedTarget().check(window) for window in HEALTHY] == [(), ()]


def test_a_second_module_on_the_same_parameters_is_named() -> None:
    symptom = newest(SharedTarget(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("a second QNet that runs without gradients has the same parameters")


def test_a_second_name_is_no_copy() -> None:
    symptom = newest(SharedTarget(), SICK[1])
    assert symptom is not None
    assert "gives the trained model a second name for its target or reference" in symptom.message


def test_a_reference_that_is_the_trained_model() -> None:
    symptom = newest(SharedTarget(), SICK[2])
    assert symptom is not None
    assert symptom.message.startswith("self, which runs without gradients in each step, is the very model")
