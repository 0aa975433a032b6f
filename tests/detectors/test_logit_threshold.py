from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.logit_threshold import LogitThreshold
from steadytrain.testing import newest

SICK = (looked(logit_threshold__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [LogitThreshold().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(LogitThreshold(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 compares logits with the threshold of probabilities")
