from __future__ import annotations

from dataclasses import replace

from script_windows import NAN, looked
from steadytrain.detectors.noisy_evaluation import NoisyEvaluation
from steadytrain.testing import newest

IN_TRAINING = looked(**{"evaluated_in_training__Net (dropout)": [NAN, NAN, NAN, NAN, 4.0]})
WITH_DROPOUT = looked(**{"evaluated_with__Net (F.dropout in train.py:9)": [NAN, NAN, NAN, 8.0]})
AT_THE_END = looked(**{"ended_in_training__Net (dropout)": [1.0]})
SICK = (IN_TRAINING, WITH_DROPOUT, AT_THE_END)
HEALTHY = (looked(), looked(in_eval__Net=[4.0]))


def test_a_generator_that_is_sampled_from_is_a_note() -> None:
    symptom = newest(NoisyEvaluation(), replace(IN_TRAINING, facts={"optimizers_in_turn": 2.0}))
    assert symptom is not None
    assert symptom.severity == "note"


def test_quiet() -> None:
    assert [NoisyEvaluation().check(window) for window in HEALTHY] == [()] * len(HEALTHY)


def test_how_it_is_evaluated() -> None:
    symptoms = [newest(NoisyEvaluation(), window) for window in SICK]
    assert [one.severity for one in symptoms if one is not None] == ["warning"] * len(SICK)
    assert [one.message.partition(":")[0] for one in symptoms if one is not None] == [
        "Net (dropout) is evaluated in training mode",
        "Net (F.dropout in train.py",
        "Net (dropout) is evaluated in training mode after the last update",
    ]
