from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.frozen_running_statistics import FrozenRunningStatistics
from steadytrain.testing import newest

LATE = [NAN] * 5
SICK = (looked(**{"new_statistics__features.1": [*LATE, 0.0], "new_statistics__features.4": [*LATE, 0.0]}),)
NOTED = looked(**{"new_statistics__features.1": [*LATE, 0.1]})
QUIET = (looked(), looked(**{"new_statistics__features.1": LATE}))
HEALTHY = (*QUIET, NOTED)


def test_quiet() -> None:
    assert [FrozenRunningStatistics().check(window) for window in QUIET] == [()] * len(QUIET)


def test_a_momentum_of_zero_is_a_warning() -> None:
    symptom = newest(FrozenRunningStatistics(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 16)
    assert symptom.tensors == ("features.1", "features.4")
    assert symptom.message == (
        "features.1 and 1 more batch norms have running mean 0 and variance 1 after 32 steps in training mode because "
        "their momentum is 0"
    )


def test_another_momentum_is_a_note() -> None:
    symptom = newest(FrozenRunningStatistics(), NOTED)
    assert symptom is not None
    assert symptom.severity == "note"


def test_a_momentum_that_is_too_small_for_the_run() -> None:
    symptom = newest(FrozenRunningStatistics(), looked(280, first_statistics__bn=[0.92], first_statistics__other=[0.9]))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("the running statistics of bn and 1 more batch norms are still 92% the mean 0")
    assert FrozenRunningStatistics().check(looked(280, first_statistics__bn=[0.3])) == ()
    assert FrozenRunningStatistics().check(looked(100, first_statistics__bn=[0.92])) == ()
