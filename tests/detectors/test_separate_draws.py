from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.separate_draws import SeparateDraws
from steadytrain.testing import newest

SICK = (looked(separate_draws__train_py_7=[1.0]), looked(places_alone__train_py_7=[1.0]))
HEALTHY = (looked(), looked(policy_code__train_py=[1.0]))


def test_quiet() -> None:
    assert [SeparateDraws().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(SeparateDraws(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("train_py_7 ")
    assert "by separate random draws" in symptom.message


def test_boxes_are_told_by_their_own_words() -> None:
    symptom = newest(SeparateDraws(), SICK[1])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert "not its boxes or points" in symptom.message
