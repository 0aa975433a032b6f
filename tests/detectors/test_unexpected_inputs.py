from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.unexpected_inputs import UnexpectedInputs
from steadytrain.testing import newest

SICK = (looked(unexpected__bn1=[0.9, 0.8]),)
HEALTHY = (looked(), looked(unexpected__bn1=[1.0, 1.0, 0.7]), looked(2, unexpected__bn1=[1.0]))


def test_quiet() -> None:
    assert [UnexpectedInputs().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_most_channels_are_a_note() -> None:
    symptom = newest(UnexpectedInputs(), SICK[0])
    assert symptom is not None
    assert symptom.severity == "note"
    assert symptom.message.startswith("the batches that bn1 gets are not what its running statistics")
