from __future__ import annotations

import pytest

from script_windows import NAN, looked
from steadytrain.core.model import Window
from steadytrain.detectors.unscaled_inputs import UnscaledInputs
from steadytrain.testing import newest

ZERO = looked(zero_inputs__train=[512.0])
SMALL, BYTES = looked(small_inputs__train=[0.0039]), looked(byte_inputs__train=[251.0])
OFFSET = looked(offset_inputs__train=[62.0])
QUIET = (looked(), looked(zero_inputs__train=[512.0, NAN, NAN, 512.0, NAN, NAN, NAN]))
HEALTHY = (*QUIET, SMALL, BYTES, OFFSET)
SICK = (ZERO,)


def test_quiet() -> None:
    assert [UnscaledInputs().check(window) for window in QUIET] == [()] * len(QUIET)


@pytest.mark.parametrize(
    ("window", "severity", "said"),
    [
        (ZERO, "warning", "are all zero (512 elements a step)"),
        (SMALL, "note", "are at most 0.0039: they may have been scaled twice"),
        (BYTES, "note", "are whole numbers from 0 to 251: they are not scaled"),
        (OFFSET, "note", "stand 62 of their standard deviations away from zero: they may have been normalised"),
    ],
)
def test_what_they_are(window: Window, severity: str, said: str) -> None:
    symptom = newest(UnscaledInputs(), window)
    assert symptom is not None
    assert symptom.severity == severity
    assert said in symptom.message
