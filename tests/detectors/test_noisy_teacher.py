from __future__ import annotations

from script_windows import looked
from steadytrain.detectors.noisy_teacher import NoisyTeacher
from steadytrain.testing import newest

SICK = (looked(noisy_teacher__Teacher=[32.0]), looked(noisy_teacher__Teacher=[24.0]))
HEALTHY = (looked(), looked(noisy_teacher__Teacher=[23.0]))


def test_quiet() -> None:
    assert [NoisyTeacher().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_a_teacher_with_dropout() -> None:
    for window in SICK:
        symptom = newest(NoisyTeacher(), window)
        assert symptom is not None
        assert (symptom.severity, symptom.first_step) == ("warning", 1)
        assert symptom.message.startswith("Teacher runs without gradients in training mode")


def test_a_part_of_the_model_is_a_note() -> None:
    symptom = newest(NoisyTeacher(), looked(noisy_part__Encoder=[32.0]))
    assert symptom is not None
    assert symptom.severity == "note"
