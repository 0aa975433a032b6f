from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.constant_penalty import ConstantPenalty
from steadytrain.testing import newest

SICK = (looked(constant_penalty__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(policy_code__train_py=[1.0]))


def test_quiet() -> None:
    assert [ConstantPenalty().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ConstantPenalty(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("train_py_7 ")
    assert "create_graph=True" in symptom.message
