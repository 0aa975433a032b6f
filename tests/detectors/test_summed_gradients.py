from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.summed_gradients import SummedGradients
from steadytrain.testing import newest

SICK = (
    looked(**{"summed_backwards__train.py:7": [4.0], "summed_steps__train.py:7": [4.0]}),
    looked(**{"summed_backwards__train.py:7": [8.0]}),
)
HEALTHY = (looked(), looked(1, **{"summed_backwards__train.py:7": [4.0]}))


def test_quiet() -> None:
    assert [SummedGradients().check(window) for window in HEALTHY] == [(), ()]


def test_it_is_a_note() -> None:
    symptom = newest(SummedGradients(), SICK[1])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
    assert symptom.message == "the gradients of 8 backward passes of train.py:7 are summed, not averaged"


def test_the_step_of_sgd() -> None:
    symptom = newest(SummedGradients(), SICK[0])
    assert symptom is not None
    assert symptom.message.endswith("; the step of SGD is 4 times larger")
