from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.overlap_of_logits import OverlapOfLogits
from steadytrain.testing import newest

SICK = (looked(overlap_of_logits__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(mixed_order__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [OverlapOfLogits().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(OverlapOfLogits(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 computes a Dice or IoU term of raw logits, without a sigmoid")
