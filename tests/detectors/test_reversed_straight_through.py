from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.reversed_straight_through import ReversedStraightThrough
from steadytrain.testing import newest

SICK = (looked(reversed_straight_through__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [ReversedStraightThrough().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ReversedStraightThrough(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 reverses the straight-through estimator")
