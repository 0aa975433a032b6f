from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.untied_weights import UntiedWeights
from steadytrain.statistics.script_rows import script_rows
from steadytrain.testing import newest


def pair(*values: float) -> Window:
    return looked(**{"untied__tokens.weight and head.weight": [NAN, *values]})


SICK = (pair(1.0),)
QUIET = (looked(), pair(0.0), pair(1.0, 0.0))  # a script may copy one over the other itself
HEALTHY = QUIET


def test_quiet() -> None:
    assert script_rows(QUIET[1], "untied")
    assert [UntiedWeights().check(window) for window in QUIET] == [()] * len(QUIET)


def test_it_names_both() -> None:
    symptom = newest(UntiedWeights(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 2)
    assert symptom.tensors == ("tokens.weight", "head.weight")
