from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.diluted_divergence import DilutedDivergence
from steadytrain.testing import newest

SICK = (looked(averaged_divergence__train_py_7=[1.0]), looked(unsquared_temperature__train_py_7=[1.0]))
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [DilutedDivergence().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    for window, said in zip(SICK, ("over the classes, too", "without the square of the temperature"), strict=True):
        symptom = newest(DilutedDivergence(), window)
        assert symptom is not None
        assert symptom.severity == "note"
        assert symptom.message.startswith("train_py_7 ")
        assert said in symptom.message
