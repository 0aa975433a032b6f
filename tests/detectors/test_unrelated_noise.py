from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.unrelated_noise import UnrelatedNoise
from steadytrain.testing import newest

SICK = (looked(noise_correlation__train_py=[0.4, 1.1, 2.5, 0.2]),)
HEALTHY = (
    looked(),
    looked(noise_correlation__train_py=[35.0, 41.0, 60.0, 38.0]),
    looked(noise_correlation__train_py=[0.4, 1.1, 2.5, 38.0]),
    looked(noise_correlation__train_py=[0.4, 1.1, *[NAN] * 5]),
)


def test_quiet() -> None:
    assert [UnrelatedNoise().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_noise_that_is_not_in_the_input() -> None:
    symptom = newest(UnrelatedNoise(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message.startswith("the target of the loss of train_py is standard noise")
