from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.unit_ratio import UnitRatio
from steadytrain.testing import newest

SICK = (looked(unit_ratio__train_py=[NAN, 1.0, 1.0, 1.0, NAN]),)
HEALTHY = (
    looked(),
    looked(unit_ratio__train_py=[NAN, 1.0, NAN, NAN, NAN]),
    looked(unit_ratio__train_py=[NAN, 1.0, 1.0, 0.0, NAN]),
)


def test_quiet() -> None:
    assert [UnitRatio().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_always_one() -> None:
    symptom = newest(UnitRatio(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 2)
    assert symptom.message.startswith("the policy ratio in the loss of train_py is exactly 1 on rows that came before")
