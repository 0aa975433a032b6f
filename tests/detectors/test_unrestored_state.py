from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.unrestored_state import UnrestoredState
from steadytrain.testing import newest

SICK = (looked(unrestored_state__train_py_7=[1.0], moments_given__Adam=[30.0]),)
HEALTHY = (looked(), looked(moments_given__Adam=[30.0]))


def test_quiet() -> None:
    assert [UnrestoredState().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_after_a_resume_it_is_a_warning() -> None:
    symptom = newest(UnrestoredState(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 saves a state that the resume never reads")


def test_before_it_is_a_note() -> None:
    symptom = newest(UnrestoredState(), looked(unrestored_state__train_py_7=[1.0]))
    assert symptom is not None
    assert symptom.severity == "note"
