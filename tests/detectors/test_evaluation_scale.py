from __future__ import annotations

from dataclasses import replace

from script_windows import looked
from steadytrain.detectors.evaluation_scale import EvaluationScale
from steadytrain.testing import newest

IMAGES = looked(other_scale__Net=[0.6])
SICK = (IMAGES, looked(other_scale_of_features__Net=[0.8]))
HEALTHY = (looked(), replace(IMAGES, facts={"moving_targets": 1.0}))


def test_quiet() -> None:
    assert [EvaluationScale().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_images() -> None:
    symptom = newest(EvaluationScale(), IMAGES)
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("Net is evaluated with inputs on another scale than those it is trained on: 60%")


def test_features_that_may_change_with_time_are_a_note() -> None:
    found = [newest(EvaluationScale(), looked(other_scale_of_features__Net=[share])) for share in (0.6, 0.8)]
    assert [one.severity for one in found if one is not None] == ["note", "warning"]
