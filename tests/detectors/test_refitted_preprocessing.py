from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.refitted_preprocessing import RefittedPreprocessing
from steadytrain.testing import newest

SICK = (looked(split_fit__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [RefittedPreprocessing().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(RefittedPreprocessing(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 fits the preprocessing anew to held-out rows")
