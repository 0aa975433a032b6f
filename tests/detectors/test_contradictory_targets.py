from __future__ import annotations

from dataclasses import replace

import pytest

from script_windows import NAN, looked
from steadytrain.core.model import Severity
from steadytrain.detectors.contradictory_targets import ContradictoryTargets
from steadytrain.testing import newest

COUNTS = {
    "different_inputs__train_py_9": [60.0, 70.0, 80.0],
    "compared_inputs__train_py_9": [64.0, 96.0, 128.0],
}
SICK = (looked(other_target__train_py_9=[0.6, 0.8, 0.9], **COUNTS),)
HEALTHY = (
    looked(),
    looked(other_target__train_py_9=[0.0, 0.0, 0.05], **COUNTS),  # a few samples that people disagree on
    looked(other_target__train_py_9=[0.9, NAN, NAN], **COUNTS),  # one look
    looked(other_target__train_py_9=[0.6, 0.3, 0.05], **COUNTS),  # more rows show that the first ones were few
)


def test_targets_that_move_with_the_model_are_excused() -> None:
    assert ContradictoryTargets().check(replace(SICK[0], facts={"moving_targets": 1.0})) == ()


def test_quiet() -> None:
    assert [ContradictoryTargets().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_rows_that_have_the_input_of_another_row() -> None:
    symptom = newest(ContradictoryTargets(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "90% of the rows that the loss of train_py_9" in symptom.message
    assert symptom.message.endswith("80 different inputs in 128 rows")


@pytest.mark.parametrize(("share", "severity"), [(0.2, "note"), (0.49, "note"), (0.5, "warning")])
def test_a_part_of_the_rows_is_a_note(share: float, severity: Severity) -> None:
    symptom = newest(ContradictoryTargets(), looked(other_target__train_py_9=[share] * 3, **COUNTS))
    assert symptom is not None
    assert symptom.severity == severity
