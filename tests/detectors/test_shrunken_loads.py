from __future__ import annotations

import pytest

from script_windows import looked
from steadytrain.detectors.shrunken_loads import ShrunkenLoads
from steadytrain.testing import newest

SICK = (looked(scaled_load__merge_py_7=[0.78], scaled_loads__merge_py_7=[3.0]),)
HEALTHY = (looked(), looked(scaled_load__merge_py_7=[0.78], scaled_loads__merge_py_7=[2.0]))


def test_quiet() -> None:
    assert [ShrunkenLoads().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_and_the_factor_are_named() -> None:
    symptom = newest(ShrunkenLoads(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("merge_py_7 loads weights that are the model's own times 0.78")
    assert symptom.numbers["share"] == pytest.approx(0.78)
