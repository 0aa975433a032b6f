from __future__ import annotations

import pytest

from script_windows import looked
from steadytrain.core.model import Window
from steadytrain.detectors.rows_without_labels import RowsWithoutLabels
from steadytrain.testing import newest

FEW = looked(rows_without_label__train=[0.125])
QUIET = (looked(), looked(rows_without_label__train=[0.0]), looked(rows_without_label__train=[0.0, 0.5, 0.0]))
SPARSE = looked(rows_without_label__train=[0.5])
HEALTHY = (*QUIET, FEW, SPARSE)
SICK = (looked(rows_without_label__train=[0.5], label_shift__train=[1.0]),)


def test_quiet() -> None:
    assert [RowsWithoutLabels().check(window) for window in QUIET] == [()] * len(QUIET)


def test_many_rows() -> None:
    symptom = newest(RowsWithoutLabels(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message == "50% of the rows have no label that the loss of train counts"


@pytest.mark.parametrize("window", [FEW, SPARSE], ids=["few", "no tokens"])
def test_few_rows_or_sparse_annotations_are_a_note(window: Window) -> None:
    symptom = newest(RowsWithoutLabels(), window)
    assert symptom is not None
    assert symptom.severity == "note"
