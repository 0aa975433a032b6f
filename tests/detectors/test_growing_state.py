from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.growing_state import GrowingState
from steadytrain.testing import newest

SICK = (looked(growing_state__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(split_fit__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [GrowingState().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(GrowingState(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 multiplies the recurrent state")
