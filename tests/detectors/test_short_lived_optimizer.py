from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.short_lived_optimizer import ShortLivedOptimizer
from steadytrain.testing import newest

SICK = (looked(step_optimizer__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [ShortLivedOptimizer().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(ShortLivedOptimizer(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 makes an optimizer anew in each step")


def test_one_for_each_epoch_is_a_note() -> None:
    symptom = newest(ShortLivedOptimizer(), looked(epoch_optimizer__train_py_7=[1.0]))
    assert symptom is not None
    assert symptom.severity == "note"
