from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.linear_model import LinearModel
from steadytrain.testing import newest

SICK = (looked(linear_layers__train_py=[3.0, 3.0, 3.0]),)
HEALTHY = (looked(), looked(linear_layers__train_py=[3.0, NAN, NAN]))


def test_quiet() -> None:
    assert [LinearModel().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_layers_alone() -> None:
    symptom = newest(LinearModel(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("nothing nonlinear stands between the 3 layers behind the loss of train_py")
