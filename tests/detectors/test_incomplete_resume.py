from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.incomplete_resume import IncompleteResume
from steadytrain.testing import newest


def begun(schedule: float, moments: float) -> Window:
    return looked(schedule_at__OneCycleLR=[schedule, NAN], moments_at__AdamW=[moments, NAN])


SECOND_PHASE = begun(0.0, 400.0)
QUIET = (looked(), begun(0.0, 0.0), begun(1.0, 0.0), begun(400.0, 400.0), begun(0.0, 1.0))
HEALTHY = (*QUIET, SECOND_PHASE)
ANOTHER_ORDER = looked(moments_reshaped__Adam=[NAN, NAN, 0.0], moments_swapped__Adam=[NAN, NAN, 6.0])
SICK = (begun(400.0, 0.0), ANOTHER_ORDER)


def test_quiet() -> None:
    assert [IncompleteResume().check(window) for window in QUIET] == [()] * len(QUIET)


def test_moments_were_not_loaded() -> None:
    symptom = newest(IncompleteResume(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    said = "before the first update OneCycleLR stood at step 400 and AdamW had no moments: they begin at zero"
    assert symptom.message == said


def test_a_second_phase_is_a_note() -> None:
    symptom = newest(IncompleteResume(), SECOND_PHASE)
    assert symptom is not None
    assert symptom.severity == "note"


def test_moments_of_other_parameters() -> None:
    symptom = newest(IncompleteResume(), ANOTHER_ORDER)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 3)
    said = "before step 3 Adam was given 6 moments of another parameter of the same model"
    assert symptom.message == f"{said}: the order of the parameters has changed"
