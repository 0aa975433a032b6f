from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.shared_layers import SharedLayers
from steadytrain.testing import newest

SICK = (looked(shared_layers__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [SharedLayers().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(SharedLayers(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 puts one layer into a list many times")
