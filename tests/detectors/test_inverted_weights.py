from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.inverted_weights import InvertedWeights
from steadytrain.testing import newest

SICK = (looked(weights_as_counts__train_py=[20.0] * 3), looked(pos_weight_as_odds__train_py=[0.1] * 3))
HEALTHY = (looked(), looked(weights_as_counts__train_py=[20.0, 20.0, NAN, NAN]))


def test_quiet() -> None:
    assert [InvertedWeights().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_weights_the_wrong_way_round() -> None:
    symptom, other = (newest(InvertedWeights(), window) for window in SICK)
    assert symptom is not None
    assert other is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("the loss of train_py weights common classes more than rare ones, the most")
    assert "20 times" in symptom.message
    assert "pos_weight of 0.1" in other.message
