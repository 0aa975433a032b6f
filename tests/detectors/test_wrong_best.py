from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.wrong_best import WrongBest
from steadytrain.testing import newest

SICK = (looked(wrong_best__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [WrongBest().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(WrongBest(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 keeps the model where its metric got worse")
