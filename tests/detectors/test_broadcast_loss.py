from __future__ import annotations

import pytest

from script_windows import looked
from steadytrain.detectors.broadcast_loss import BroadcastLoss
from steadytrain.testing import newest

SICK = (looked(broadcast__train=[32.0]),)
QUIET = (looked(), looked(1, broadcast__train=[32.0]), looked(softmax_twice__train=[1.0]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [BroadcastLoss().check(window) for window in QUIET] == [()] * len(QUIET)


def test_how_many() -> None:
    symptom = newest(BroadcastLoss(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "each of 32 predictions with every target" in symptom.message


@pytest.mark.parametrize(
    ("column", "targets", "said", "number"),
    [
        (1.0, 1.0, "predictions [32, 1] and targets [32] make a table [32, 32]", "column"),
        (0.0, 2.0, "predictions [32] and targets [32, 1] make a table [32, 32]", "column"),
        (1.0, 3.0, "predictions are [32, 1], and the targets were a table [32, 32] before they met", "table"),
        (1.0, None, "predictions [32, 1] and targets of another shape make a table [32, 32]", None),
    ],
)
def test_the_shapes_that_are_said_are_those_that_met(
    column: float, targets: float | None, said: str, number: str | None
) -> None:
    known = {} if targets is None else {"broadcast_targets__train": [targets]}
    symptom = newest(BroadcastLoss(), looked(broadcast__train=[32.0], broadcast_column__train=[column], **known))
    assert symptom is not None
    assert said in symptom.message
    assert symptom.numbers.keys() == {"rows", *([number] if number else [])}


def test_a_target_that_is_stretched_is_a_note() -> None:
    symptom = newest(BroadcastLoss(), looked(stretched_target__train=[7.0]))
    assert symptom is not None
    assert symptom.severity == "note"
    assert "compares each target with 7 values of a prediction" in symptom.message
