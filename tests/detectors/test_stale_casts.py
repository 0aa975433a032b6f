"""An autocast context that stays open over an update is named by its line."""

from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.stale_casts import StaleCasts
from steadytrain.testing import newest

SICK = (looked(stale_casts__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(unlike_recomputation__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [StaleCasts().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(StaleCasts(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 opens an autocast context")
