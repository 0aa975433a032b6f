from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.idle_schedule import IdleSchedule
from steadytrain.testing import newest


def idle(*passes: float) -> Window:
    return looked(idle_schedule__CosineAnnealingLR=[NAN, *passes])


SECOND_PASS = idle(2.0)
SICK = (idle(2.0, 4.5),)
QUIET = (looked(),)
HEALTHY = (*QUIET, SECOND_PASS)


def test_quiet() -> None:
    assert [IdleSchedule().check(window) for window in QUIET] == [()] * len(QUIET)


def test_the_schedule_is_named() -> None:
    symptom = newest(IdleSchedule(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 2)
    said = "CosineAnnealingLR was never stepped: 4 passes over the data, and the rate is where it began"
    assert symptom.message == said


def test_the_second_pass_is_a_note() -> None:
    symptom = newest(IdleSchedule(), SECOND_PASS)
    assert symptom is not None
    assert symptom.severity == "note"


def test_a_schedule_of_another_optimizer() -> None:
    symptom = newest(IdleSchedule(), looked(stray_schedule__StepLR=[8.0]))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "steps an optimizer that makes no step" in symptom.message
