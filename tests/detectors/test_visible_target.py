from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.visible_target import VisibleTarget
from steadytrain.testing import newest

SICK = (looked(target_in_last_input__train_py=[23.0] * 4),)
HEALTHY = (
    looked(),
    looked(target_in_last_input__train_py=[23.0, 23.0, NAN, NAN]),
    looked(target_in_last_input__train_py=[23.0, 22.0, 23.0, 23.0]),
)


def test_quiet() -> None:
    assert [VisibleTarget().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_target_among_the_inputs() -> None:
    symptom = newest(VisibleTarget(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("the target of the loss of train_py is among the inputs: each equals place 23")


def test_another_place_is_a_note() -> None:
    symptom = newest(VisibleTarget(), looked(target_in_input__train_py=[2.0] * 4))
    assert symptom is not None
    assert symptom.severity == "note"
