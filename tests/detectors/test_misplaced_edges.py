from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.misplaced_edges import MisplacedEdges
from steadytrain.testing import newest

SICK = (looked(reached_graphs__Net=[0.1, 0.2, 0.1, 0.1]),)
HEALTHY = (
    looked(),
    looked(reached_graphs__Net=[1.0, 0.9, 1.0, 1.0]),
    looked(reached_graphs__Net=[0.1, 0.1, *[NAN] * 5]),  # too few looks
    looked(reached_graphs__Net=[0.1, 0.9, 0.2, 0.1]),  # sparse data
)


def test_quiet() -> None:
    assert [MisplacedEdges().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_edges_that_reach_the_first_graphs_only() -> None:
    symptom = newest(MisplacedEdges(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("the edges that Net is given reach 10% of the graphs of a batch")
