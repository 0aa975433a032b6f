from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.repeated_batch import RepeatedBatch
from steadytrain.testing import newest

COUNTS = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0]
ANEW = looked(same_batch__values=COUNTS)
QUIET = (
    looked(),
    looked(same_batch__tensors=COUNTS),  # all the data at once
    looked(same_batch__loader=[1.0]),
    looked(same_batch__loader=[1.0, 2.0, 3.0, 4.0, 1.0]),  # some updates on each batch
)
KEPT = looked(same_batch__kept=COUNTS)  # a test of overfitting
HEALTHY = (*QUIET, ANEW, KEPT)
SICK = (looked(same_batch__loader=COUNTS),)


def test_quiet() -> None:
    assert [RepeatedBatch().check(window) for window in QUIET] == [()] * len(QUIET)


def test_from_a_loader_that_has_more() -> None:
    symptom = newest(RepeatedBatch(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == "the same batch at 32 steps in a row, of a data loader that has more"


def test_taken_once_is_a_note() -> None:
    symptom = newest(RepeatedBatch(), KEPT)
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.endswith("taken once from a data loader that has more, and kept")


def test_made_anew_is_a_note() -> None:
    symptom = newest(RepeatedBatch(), ANEW)
    assert symptom is not None
    assert symptom.severity == "note"


STUCK = looked(same_batch__tensors=[1.0] * 4, stuck_batch__tensors=[1.0, 1.0, 1.0, 1.0, 1.0, 8.0, 24.0])


def test_stuck_after_other_batches() -> None:
    symptom = newest(RepeatedBatch(), STUCK)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 9)
    assert symptom.message == "the same batch at 24 steps in a row, after steps with other batches"


def test_a_row_that_is_over_is_a_note() -> None:
    symptom = newest(RepeatedBatch(), looked(80, stuck_batch__tensors=[1.0] * 6 + [24.0]))
    assert symptom is not None
    assert symptom.severity == "note"


def test_a_policy_that_stands_still_is_a_note() -> None:
    symptom = newest(RepeatedBatch(), looked(stuck_batch__values=[24.0], policy_code__log_prob=[1.0]))
    assert symptom is not None
    assert symptom.severity == "note"
