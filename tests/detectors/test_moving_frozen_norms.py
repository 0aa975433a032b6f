from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.moving_frozen_norms import MovingFrozenNorms
from steadytrain.testing import newest

SICK = (looked(frozen_norm_moved__a=[0.25]),)
HEALTHY = (looked(), looked(frozen_norm_moved__a=[0.2]))


def test_quiet() -> None:
    assert [MovingFrozenNorms().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_statistics_that_move_are_a_note() -> None:
    symptom = newest(MovingFrozenNorms(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("the weights of a and of what is in front of it are frozen")
