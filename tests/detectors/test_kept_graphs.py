from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.kept_graphs import KeptGraphs
from steadytrain.testing import newest

SICK = (looked(kept_graphs__train_py_7=[1.0]),)
NOTED = (looked(kept_in_epoch__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [KeptGraphs().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_of_the_whole_run() -> None:
    symptom = newest(KeptGraphs(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 keeps each loss of the run together with its graph")


def test_of_one_pass() -> None:
    symptom = newest(KeptGraphs(), NOTED[0])
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("train_py_7 keeps each loss of a pass")
