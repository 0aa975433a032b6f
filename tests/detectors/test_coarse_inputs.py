from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.coarse_inputs import CoarseInputs
from steadytrain.testing import newest

SICK = (looked(coarse_input__t=[2.6e-3, 2.4e-3, 2.5e-3]),)
HEALTHY = (looked(), looked(coarse_input__t=[1e-7, 1e-7]), looked(coarse_input__t=[2.6e-3, 1e-6]))


def test_quiet() -> None:
    assert [CoarseInputs().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_input_is_named() -> None:
    symptom = newest(CoarseInputs(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("the input t of the model is so large")
