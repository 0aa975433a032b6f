from __future__ import annotations

from dataclasses import replace

import numpy as np

from script_windows import looked
from steadytrain.core.model import Window
from steadytrain.detectors.few_trained_parameters import FewTrainedParameters
from steadytrain.testing import newest

NOISE = 0.02 * np.random.default_rng(0).standard_normal(160)


def trained(loss: np.ndarray, **rows: list[float]) -> Window:
    window = looked(160, **(rows or {"trained_elements__biases": [1200.0], "all_elements__model": [184_000.0]}))
    return replace(window, signals={**window.signals, "loss": loss})


FALLS = trained(2.0 - 0.005 * np.arange(160) + NOISE)
SICK = (trained(2.0 + NOISE),)
QUIET = (looked(), trained(2.0 + NOISE, tied__a=[0.0]))
NOISY = trained(2.0 + 40.0 * NOISE)
HEALTHY = (*QUIET, FALLS, NOISY)


def test_quiet() -> None:
    assert [FewTrainedParameters().check(window) for window in QUIET] == [()] * len(QUIET)


def test_without_progress_it_is_a_warning() -> None:
    symptom = newest(FewTrainedParameters(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 1)
    assert symptom.message == "only 1,200 of 184,000 elements of the model are trained: biases"


def test_with_progress_or_noise_it_is_a_note() -> None:
    for window in (FALLS, NOISY):
        symptom = newest(FewTrainedParameters(), window)
        assert symptom is not None
        assert symptom.severity == "note"
