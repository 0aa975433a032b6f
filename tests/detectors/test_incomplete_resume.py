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
SICK = (begun(400.0, 0.0),)


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
