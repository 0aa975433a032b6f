from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.unequal_reductions import UnequalReductions
from steadytrain.testing import newest

SICK = (looked(summed_term__train_py_9=[128.0, 128.0]),)
HEALTHY = (looked(), looked(summed_term__train_py_9=[3.0]), looked(summed_term__train_py_9=[2.0, 40.0]))


def test_quiet() -> None:
    assert [UnequalReductions().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_sum_beside_an_average() -> None:
    symptom = newest(UnequalReductions(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "outweighed 128 times" in symptom.message
