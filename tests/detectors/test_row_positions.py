from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.row_positions import RowPositions
from steadytrain.testing import newest

SICK = (looked(row_positions__train_py_7=[1.0]), looked(counted_rows__train_py_9=[8.0, 8.0, 8.0]))
HEALTHY = (looked(), looked(counted_rows__train_py_9=[8.0, 8.0, NAN]))


def test_quiet() -> None:
    assert [RowPositions().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    read, seen = (newest(RowPositions(), window) for window in SICK)
    assert read is not None
    assert seen is not None
    assert read.message.startswith("train_py_7 counts positions along the batch")
    assert seen.message.startswith("the model of the loss of train_py_9 counts positions along the batch")
    assert read.severity == seen.severity == "warning"
