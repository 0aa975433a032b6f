from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.reversed_returns import ReversedReturns
from steadytrain.testing import newest

SICK = (looked(reversed_returns__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(mixed_order__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [ReversedReturns().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ReversedReturns(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 collects discounted returns from the last step backwards")
