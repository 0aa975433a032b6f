from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.constant_targets import ConstantTargets
from steadytrain.testing import newest

SICK = (looked(constant_target__train=[0.0]),)
QUIET = (
    looked(),
    looked(constant_target__train=[1.0, 0.0, 1.0, 0.0]),
    looked(constant_target__train=[0.0, NAN, NAN, 0.0, NAN]),
)
HEALTHY = QUIET


def test_quiet() -> None:
    assert [ConstantTargets().check(window) for window in QUIET] == [()] * len(QUIET)


def test_which_number() -> None:
    symptom = newest(ConstantTargets(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("note", 1)
    assert symptom.message == "all targets of the loss of train are 0 in 7 looks"
