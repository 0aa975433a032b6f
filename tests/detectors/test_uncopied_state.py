from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.uncopied_state import UncopiedState
from steadytrain.testing import newest

SICK = (looked(own_state_loaded__train_py_40=[1.0]),)
HEALTHY = (looked(), looked(weights_replaced__train_py_40=[0.5]))


def test_quiet() -> None:
    assert [UncopiedState().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_load_that_changes_nothing() -> None:
    symptom = newest(UncopiedState(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "never copied" in symptom.message


def test_a_best_model_that_goes_on_training() -> None:
    symptom = newest(UncopiedState(), looked(kept_by_reference__train_py_12=[1.0]))
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_12 keeps the best model or state without a copy")
