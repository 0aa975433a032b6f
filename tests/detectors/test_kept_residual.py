from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.kept_residual import KeptResidual
from steadytrain.testing import newest

SICK = (looked(kept_residual__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(unused_end__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [KeptResidual().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(KeptResidual(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 keeps what was sent")
