from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.shifted_edges import ShiftedEdges
from steadytrain.testing import newest

SICK = (looked(graph_offset__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(unused_end__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [ShiftedEdges().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ShiftedEdges(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 lets the offset of the edges grow")
