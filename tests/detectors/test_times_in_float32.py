from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.times_in_float32 import TimesInFloat32
from steadytrain.testing import newest

SICK = (looked(time_in_float32__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(split_fit__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [TimesInFloat32().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(TimesInFloat32(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 converts a time to float32 as it is")
