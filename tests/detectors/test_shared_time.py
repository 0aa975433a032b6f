from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.shared_time import SharedTime
from steadytrain.testing import newest


def test_one_time_a_batch() -> None:
    assert SharedTime().check(looked(shared_time__train_py=[2.0, 3.0, 4.0, NAN])) == ()
    symptom = newest(SharedTime(), looked(shared_time__train_py=[2.0, 3.0, 4.0, 5.0]))
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
    assert symptom.message.startswith("the loss of train_py has one time for all rows of a batch")
