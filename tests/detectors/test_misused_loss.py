from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.misused_loss import SAID, MisusedLoss
from steadytrain.testing import newest

SICK = tuple(looked(**{f"{measure.replace('-', '_')}__train.py:7": [1.0]}) for measure in SAID)
QUIET = (looked(), looked(broadcast__train=[8.0]), looked(1, softmax_twice__train=[1.0]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [MisusedLoss().check(window) for window in QUIET] == [()] * len(QUIET)


def test_its_place_is_said() -> None:
    symptom = newest(MisusedLoss(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == "the loss of train.py:7 gets the output of softmax and takes softmax of it again"
