from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.cut_off_scale import CutOffScale
from steadytrain.testing import newest

SICK = (looked(cut_off_scale__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(mixed_order__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [CutOffScale().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(CutOffScale(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith(
        "train_py_7 makes a variance or scale positive by a ReLU, a clamp near 0 or a square"
    )
