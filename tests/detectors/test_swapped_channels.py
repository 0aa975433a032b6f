from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.swapped_channels import SwappedChannels
from steadytrain.testing import newest

SICK = (looked(swapped_channels__train_py_7=[1.0]),)
HEALTHY = (looked(),)


def test_quiet() -> None:
    assert [SwappedChannels().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_the_line_is_named() -> None:
    symptom = newest(SwappedChannels(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("train_py_7 reads images with blue first")
