from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.stale_target import StaleTarget
from steadytrain.testing import newest

NOTED = looked(stale_copy__QNet=[NAN, NAN, 128.0])
SICK = (looked(stale_copy__QNet=[NAN, NAN, 16_384.0]),)
HEALTHY = (looked(), NOTED)


def test_quiet() -> None:
    assert StaleTarget().check(HEALTHY[0]) == ()


def test_a_copy_that_may_be_due_later_is_a_note() -> None:
    symptom = newest(StaleTarget(), NOTED)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
    assert "a copy of QNet" in symptom.message
    assert "after 128 updates" in symptom.message


def test_after_very_many_updates_it_is_a_warning() -> None:
    symptom = newest(StaleTarget(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
