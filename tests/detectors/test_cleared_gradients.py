from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.cleared_gradients import ClearedGradients
from steadytrain.testing import newest

SICK = (looked(cleared_gradients__train_py_7=[1.0, 2.0, 3.0]),)
HEALTHY = (looked(), looked(cleared_gradients__train_py_7=[1.0, 2.0]))


def test_quiet() -> None:
    assert [ClearedGradients().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ClearedGradients(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("train_py_7 clears the gradients after the backward and before the step")
