from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.optimizer_without_gradients import OptimizerWithoutGradients
from steadytrain.testing import newest


def idle(*steps: float) -> Window:
    return looked(**{"without_gradient__Adam of Maker": steps, "without_gradient_of__Adam of Maker": [8.0]})


EARLY = idle(NAN, NAN, NAN, 4.0)
SICK = (idle(NAN, NAN, NAN, 4.0, 16.0),)
QUIET = (looked(),)
HEALTHY = (*QUIET, EARLY)


def test_quiet() -> None:
    assert [OptimizerWithoutGradients().check(window) for window in QUIET] == [()] * len(QUIET)


def test_the_optimizer_is_named() -> None:
    symptom = newest(OptimizerWithoutGradients(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message == (
        "Adam of Maker has made 16 steps, and none of its 8 parameters ever had a gradient: it updates nothing"
    )


def test_a_few_steps_are_a_note() -> None:
    symptom = newest(OptimizerWithoutGradients(), EARLY)
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
