from __future__ import annotations

from dataclasses import replace

from script_windows import NAN, looked
from steadytrain.detectors.equal_inputs import EqualInputs
from steadytrain.detectors.repeated_batch import RepeatedBatch
from steadytrain.testing import newest

SICK = (
    looked(equal_inputs__train_py_9=[32.0, 32.0, 32.0], constant_inputs__train_py_9=[-2.0, -2.0, -2.0]),
    looked(equal_inputs__train_py_9=[NAN, 32.0, 32.0, 32.0]),
)
HEALTHY = (
    looked(),
    looked(equal_inputs__train_py_9=[32.0, 32.0, NAN]),
    looked(equal_inputs__train_py_9=[32.0, NAN, NAN]),  # a first observation
)


def test_quiet() -> None:
    assert [EqualInputs().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_targets_that_move_with_the_model_are_excused() -> None:
    assert EqualInputs().check(replace(SICK[0], facts={"moving_targets": 1.0})) == ()


def test_the_message_names_the_rows_the_value_and_the_loss() -> None:
    symptom = newest(EqualInputs(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step, symptom.numbers) == ("warning", 1, {"rows": 32.0})
    assert symptom.message == (
        "the model gets the same input for all 32 rows of a batch: every number is -2, while the targets of the loss "
        "of train_py_9 differ"
    )
    later = newest(EqualInputs(), SICK[1])
    assert later is not None
    assert "every number" not in later.message


def test_a_batch_of_equal_rows_is_not_one_that_comes_again() -> None:
    again = {"same_batch__loader": [8.0, 9.0, 10.0]}
    assert RepeatedBatch().check(looked(**again))
    assert not RepeatedBatch().check(looked(**again, equal_inputs__train_py_9=[32.0] * 3))
