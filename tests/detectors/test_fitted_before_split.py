from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.fitted_before_split import FittedBeforeSplit
from steadytrain.testing import newest

SICK = (looked(learned_before_split__train_py_7=[1.0], scaled_before_split__train_py_6=[1.0]),)
NOTED = looked(scaled_before_split__train_py_6=[1.0])
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [FittedBeforeSplit().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_graver_line_is_named() -> None:
    symptom = newest(FittedBeforeSplit(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 chooses columns by the labels")


def test_a_scaler_is_a_note() -> None:
    symptom = newest(FittedBeforeSplit(), NOTED)
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("train_py_6 fits a scaler to all rows")
