from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.misplaced_labels import MisplacedLabels
from steadytrain.testing import newest

COPIES = looked(label_shift__train=[0.0], causal__train=[1.0])
AUTOENCODER = looked(label_shift__train=[0.0])
QUIET = (
    looked(),
    looked(label_shift__train=[1.0], causal__train=[1.0]),
    looked(label_shift__train=[1.0, 0.0, 1.0]),  # a batch of one token
)
HEALTHY = (*QUIET, AUTOENCODER)
SICK = (COPIES, looked(label_shift__train=[2.0]), looked(label_shift__train=[0.0], other_text__train=[1.0]))


def test_quiet() -> None:
    assert [MisplacedLabels().check(window) for window in QUIET] == [()] * len(QUIET)


def test_where_they_stand() -> None:
    said = [symptom.message for window in SICK for symptom in MisplacedLabels().check(window)]
    assert said == [
        "each label of the loss of train is the token at the same place, not the next one",
        "each label of the loss of train is the token 2 places later, not the next one",
        "each label of the loss of train is the token at the same place, not the next one",
    ]
    assert {newest(MisplacedLabels(), window).severity for window in SICK} == {"warning"}  # type: ignore[union-attr]


def test_an_autoencoder_is_a_note() -> None:
    symptom = newest(MisplacedLabels(), AUTOENCODER)
    assert symptom is not None
    assert symptom.severity == "note"
