from __future__ import annotations

import pytest

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.replaced_weights import ReplacedWeights
from steadytrain.testing import newest


def replaced(*changes: float) -> Window:
    return looked(**{"weights_replaced__train.py:88": list(changes)})


QUIET = (looked(), replaced(NAN, NAN), replaced(NAN, 2e-4))
HEALTHY = QUIET
ONCE, OFTEN = replaced(NAN, 0.052, NAN), replaced(NAN, 0.052, NAN, 0.04, 0.06, NAN)
SICK = (ONCE, OFTEN)


@pytest.mark.parametrize(("after", "severity"), [(3.0, "warning"), (1.1, "note")])
def test_weights_that_an_evaluation_left_are_a_warning_if_the_loss_rises(after: float, severity: str) -> None:
    left = looked(40, loss=[4.0] * 8 + [1.0] * 23 + [after] * 9, left_in__GPT=[NAN] * 6 + [40.0])
    symptom = newest(ReplacedWeights(), left)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == (severity, 32)
    assert "from step 32 on, GPT trains the weights that were evaluated before it, 40 updates away" in symptom.message
    assert ("67% of the progress" in symptom.message) is (severity == "warning")


def test_quiet() -> None:
    assert [ReplacedWeights().check(window) for window in QUIET] == [()] * len(QUIET)


def test_the_line_is_named() -> None:
    symptom = newest(ReplacedWeights(), ONCE)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 2)
    assert symptom.message == (
        "before step 2, train.py:88 loaded weights that differ by 0.052 of their norm from those that the update "
        "before had left, and the optimizer kept its state"
    )


def test_several_times_are_one_symptom() -> None:
    (symptom,) = ReplacedWeights().check(OFTEN)
    assert (symptom.first_step, symptom.numbers["times"]) == (2, 3)
    assert "before step 2, and in 2 later steps, train.py:88 loaded" in symptom.message
