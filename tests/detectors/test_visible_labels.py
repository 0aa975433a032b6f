from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.visible_labels import VisibleLabels
from steadytrain.testing import newest

SICK = (looked(label_shift__train=[1.0], next_place_seen__train=[0.1]),)
QUIET = (
    looked(),
    looked(label_shift__train=[1.0], next_place_seen__train=[0.0]),
    looked(label_shift__train=[0.0], next_place_seen__train=[0.1]),
    looked(next_place_seen__train=[0.1]),  # hidden words
)
HEALTHY = QUIET


def test_quiet() -> None:
    assert [VisibleLabels().check(window) for window in QUIET] == [()] * len(QUIET)


def test_it_names_the_loss() -> None:
    symptom = newest(VisibleLabels(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "attention sees the next token, which is the label of the loss of train" in symptom.message
