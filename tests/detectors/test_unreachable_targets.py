from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.unreachable_targets import UnreachableTargets
from steadytrain.testing import newest

SICK = (looked(unreachable_sigmoid__train_py=[0.5, 0.48, 0.51]), looked(unreachable_probability__train_py=[0.2] * 3))
HEALTHY = (looked(), looked(unreachable_sigmoid__train_py=[0.5, NAN, NAN]))


def test_quiet() -> None:
    assert [UnreachableTargets().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_targets_out_of_reach() -> None:
    symptom, other = (newest(UnreachableTargets(), window) for window in SICK)
    assert symptom is not None
    assert other is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("51% of the targets of the loss of train_py cannot be reached: a sigmoid")
    assert "binary cross-entropy" in other.message
