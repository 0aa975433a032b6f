from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.split_windows import SplitWindows
from steadytrain.testing import newest

SICK = (looked(split_windows__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [SplitWindows().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(SplitWindows(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 splits overlapping windows")
