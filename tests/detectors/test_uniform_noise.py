from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.uniform_noise import UniformNoise
from steadytrain.testing import newest

SICK = (looked(uniform_noise__train_py=[0.4, 0.5, 0.38, 0.6]),)
HEALTHY = (
    looked(),
    looked(uniform_noise__train_py=[-0.4, -0.5, -0.38, -0.6]),
    looked(uniform_noise__train_py=[0.4, 0.5, 0.05, 0.6]),
    looked(uniform_noise__train_py=[0.4, 0.5, *[NAN] * 5]),
)


def test_quiet() -> None:
    assert [UniformNoise().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_noise_between_0_and_1() -> None:
    symptom = newest(UniformNoise(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert "torch.randn_like, not rand_like" in symptom.message
