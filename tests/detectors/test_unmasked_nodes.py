from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.unmasked_nodes import UnmaskedNodes
from steadytrain.testing import newest

SICK = (looked(unmasked_nodes__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [UnmaskedNodes().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(UnmaskedNodes(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 takes the loss over all nodes")
