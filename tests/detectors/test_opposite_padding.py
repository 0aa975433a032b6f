from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.opposite_padding import OppositePadding
from steadytrain.testing import newest

SICK = (looked(opposite_padding__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(split_fit__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [OppositePadding().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(OppositePadding(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 puts labels or a mask")
