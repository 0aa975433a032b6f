from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.clipped_while_scaled import ClippedWhileScaled
from steadytrain.testing import newest

SICK = (looked(clipped_scaled__gradients=[1.0, 2.0, 3.0]),)
QUIET = (looked(), looked(clipped_scaled__gradients=[1.0]), looked(carried_over__gradients=[0.0]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [ClippedWhileScaled().check(window) for window in QUIET] == [()] * len(QUIET)


def test_how_often() -> None:
    symptom = newest(ClippedWhileScaled(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "clipped at 3 steps" in symptom.message
