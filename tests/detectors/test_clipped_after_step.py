from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.clipped_after_step import ClippedAfterStep
from steadytrain.testing import newest

SICK = (looked(clipped_late__gradients=[1.0, 2.0, 3.0]), looked(clipped_early__gradients=[1.0, 2.0, 3.0]))
QUIET = (looked(), looked(clipped_late__gradients=[1.0]), looked(clipped_scaled__gradients=[1.0, 2.0]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [ClippedAfterStep().check(window) for window in QUIET] == [()] * len(QUIET)


def test_how_often() -> None:
    symptom = newest(ClippedAfterStep(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "after the update in 3 of the steps" in symptom.message


def test_before_the_backward() -> None:
    symptom = newest(ClippedAfterStep(), SICK[1])
    assert symptom is not None
    assert "before the backward in 3 of the steps" in symptom.message
