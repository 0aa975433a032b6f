from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.foreign_gradients import ForeignGradients
from steadytrain.testing import newest

SICK = (looked(foreign__gradients=[-0.6, -0.4, 0.1, -0.5]),)
HEALTHY = (
    looked(),
    looked(foreign__gradients=[0.2, -0.05, 0.1, 0.3]),
    looked(foreign__gradients=[-0.6, -0.5, *[NAN] * 5]),
)


def test_quiet() -> None:
    assert [ForeignGradients().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_gradients_that_oppose_those_of_the_own_loss() -> None:
    symptom = newest(ForeignGradients(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == (
        "the update also applies a gradient that a loss of another optimizer left, and that opposes its own "
        "(cosine -0.50): gradients are not cleared before the backward"
    )
