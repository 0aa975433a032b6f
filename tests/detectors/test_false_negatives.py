from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.false_negatives import FalseNegatives
from steadytrain.testing import newest

SICK = (looked(duplicate_positives__train_py_9=[0.8, 0.75, 0.9, 0.6]),)
HEALTHY = (
    looked(),
    looked(duplicate_positives__train_py_9=[0.05, 0.1, 0.03, 0.0]),
    looked(duplicate_positives__train_py_9=[0.8, 0.9, *[NAN] * 5]),  # too few looks
)


def test_quiet() -> None:
    assert [FalseNegatives().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_copies_in_the_batch() -> None:
    symptom = newest(FalseNegatives(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "right answers count as wrong ones" in symptom.message
