from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.supervised_padding import SupervisedPadding
from steadytrain.testing import newest

SICK = (looked(padding_share__train=[0.4]), looked(padding_share__train=[NAN, 0.2, 0.0, 0.3, 0.0]))
QUIET = (looked(), looked(padding_share__train=[0.0]), looked(padding_share__train=[0.05]))
AVERAGED = looked(mean_over_padding__train=[0.8])
HEALTHY = (*QUIET, AVERAGED)


def test_quiet() -> None:
    assert [SupervisedPadding().check(window) for window in QUIET] == [()] * len(QUIET)


def test_how_much() -> None:
    symptom = newest(SupervisedPadding(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == "40% of the labels of the loss of train are padding after padding"


def test_a_mean_over_masked_places_is_a_note() -> None:
    symptom = newest(SupervisedPadding(), AVERAGED)
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("the mean of the loss of train counts 80% places that its mask sets to zero")
