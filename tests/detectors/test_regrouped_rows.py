from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.regrouped_rows import RegroupedRows
from steadytrain.testing import newest

SICK = (looked(rows_regrouped__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(split_fit__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [RegroupedRows().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(RegroupedRows(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 computes the rows in another order and does not put the results back")
