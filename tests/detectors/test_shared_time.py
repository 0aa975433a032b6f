from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.shared_time import SharedTime
from steadytrain.testing import newest

SICK = (looked(shared_time__train_py=[2.0, 3.0, 4.0, 5.0]),)
HEALTHY = (looked(), looked(shared_time__train_py=[2.0, 3.0, 4.0, NAN]))


def test_quiet() -> None:
    assert [SharedTime().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_one_time_a_batch() -> None:
    symptom = newest(SharedTime(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
    assert symptom.message.startswith("the loss of train_py has one time for all rows of a batch")
