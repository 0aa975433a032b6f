from __future__ import annotations

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
