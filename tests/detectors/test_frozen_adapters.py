from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.frozen_adapters import FrozenAdapters
from steadytrain.testing import newest

SICK = (looked(frozen_adapters__block=[4.0]),)
HEALTHY = (looked(), looked(trained_elements__biases=[40.0]))


def test_quiet() -> None:
    assert [FrozenAdapters().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_adapters_that_are_frozen() -> None:
    symptom = newest(FrozenAdapters(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("all 4 parameters of adapters are frozen, block first")
