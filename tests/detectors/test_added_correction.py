from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.added_correction import AddedCorrection
from steadytrain.testing import newest

SICK = (looked(added_correction__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(unused_end__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [AddedCorrection().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(AddedCorrection(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 adds the logarithm of the sampling probability")
