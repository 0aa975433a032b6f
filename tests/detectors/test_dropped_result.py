from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.dropped_result import DroppedResult
from steadytrain.testing import newest

SICK = (
    looked(**{"dropped_result__train.py:7:scores.masked_fill": [1.0], "dropped_result__train.py:9:x.clamp": [1.0]}),
)
HEALTHY = (looked(), looked(**{"changed_copy__train.py:7": [1.0]}))


def test_quiet() -> None:
    assert [DroppedResult().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_and_the_call_are_named() -> None:
    symptom = newest(DroppedResult(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train.py:7, scores.masked_fill(...), changes nothing in place")
    assert "its result is not used" in symptom.message
    assert symptom.numbers == {"lines": 2.0}
