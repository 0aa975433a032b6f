from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.squared_spread import SquaredSpread
from steadytrain.testing import newest

SICK = (looked(squared_spread__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [SquaredSpread().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(SquaredSpread(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 takes logvar or exp(logvar) for a standard deviation")
