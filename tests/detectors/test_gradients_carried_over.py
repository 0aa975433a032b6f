from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.gradients_carried_over import GradientsCarriedOver
from steadytrain.testing import newest

SICK = (looked(carried_over__gradients=[0.0, 1.0]), looked(carried_over__gradients=[0.0, 1.0, 1.0, 0.0, 1.0]))
QUIET = (looked(), looked(carried_over__gradients=[0.0]), looked(carried_over__gradients=[0.0, 1.0, 0.0]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [GradientsCarriedOver().check(window) for window in QUIET] == [()] * len(QUIET)


def test_every_update() -> None:
    symptom = newest(GradientsCarriedOver(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 2)
    assert "every update from step 2 on" in symptom.message


def test_some_updates() -> None:
    symptom = newest(GradientsCarriedOver(), SICK[1])
    assert symptom is not None
    assert "5 of 7 updates that were looked at" in symptom.message
