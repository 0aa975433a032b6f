from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.kept_statistics import KeptStatistics
from steadytrain.testing import newest

SICK = (looked(kept_statistics__Net=[0.25]),)
HEALTHY = (looked(), looked(kept_statistics__Net=[0.2]))


def test_quiet() -> None:
    assert [KeptStatistics().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_first_statistics() -> None:
    symptom = newest(KeptStatistics(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("the averaged copy of Net that is evaluated follows the weights of the model")
