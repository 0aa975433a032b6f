from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.broadcast_loss import BroadcastLoss
from steadytrain.testing import newest

SICK = (looked(broadcast__train=[32.0]),)
QUIET = (looked(), looked(1, broadcast__train=[32.0]), looked(softmax_twice__train=[1.0]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [BroadcastLoss().check(window) for window in QUIET] == [()] * len(QUIET)


def test_how_many() -> None:
    symptom = newest(BroadcastLoss(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "each of 32 predictions with every target" in symptom.message
