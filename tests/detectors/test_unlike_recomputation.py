"""A recomputed forward that draws again is named by the line of the option."""

from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.unlike_recomputation import UnlikeRecomputation
from steadytrain.testing import newest

SICK = (looked(unlike_recomputation__train_py_7=[1.0]),)
HEALTHY = (looked(), looked(kept_residual__train_py_7=[1.0]))


def test_quiet() -> None:
    assert [UnlikeRecomputation().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(UnlikeRecomputation(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "warning"
    assert symptom.message.startswith("train_py_7 keeps no random state")
