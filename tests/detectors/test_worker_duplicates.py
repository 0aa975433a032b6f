from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.worker_duplicates import WorkerDuplicates
from steadytrain.testing import newest

QUIET = HEALTHY = (looked(), looked(same_order__RandomSampler=[NAN, 2.0]))
SICK = (looked(equal_workers__Stream=[NAN, NAN, NAN, NAN, 2.0]),)


def test_quiet() -> None:
    assert [WorkerDuplicates().check(window) for window in QUIET] == [()] * len(QUIET)


def test_the_data_set_is_named() -> None:
    symptom = newest(WorkerDuplicates(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 8)
    assert symptom.message == "all 2 workers give the same batches of Stream"
