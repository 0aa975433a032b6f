from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.clipped_nothing import ClippedNothing
from steadytrain.testing import newest

SICK = (looked(clipped_nothing__gradients=[1.0, 2.0, 3.0]),)
HEALTHY = (
    looked(),
    looked(clipped_nothing__gradients=[1.0]),
    looked(clipped_late__gradients=[1.0, 2.0], clipped_early__gradients=[1.0, 2.0]),
)


def test_it_says_that_nothing_is_clipped_and_why() -> None:
    symptom = newest(ClippedNothing(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "no parameters in 3 of the steps" in symptom.message
    assert "keep a list" in symptom.message


def test_quiet() -> None:
    assert [ClippedNothing().check(window) for window in HEALTHY] == [()] * len(HEALTHY)
