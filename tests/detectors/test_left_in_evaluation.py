from __future__ import annotations

from script_windows import NAN, looked
from steadytrain.detectors.left_in_evaluation import LeftInEvaluation
from steadytrain.testing import newest

SICK = (
    looked(in_eval__Model=[NAN, NAN, NAN, NAN, 4.0, NAN]),
    looked(in_eval_no_draws__Model=[NAN, NAN, NAN, NAN, 4.0, NAN]),
)
QUIET = (looked(), looked(in_eval__Model=[NAN, 1.0, 2.0, 3.0, NAN, NAN]))
HEALTHY = QUIET


def test_quiet() -> None:
    assert [LeftInEvaluation().check(window) for window in QUIET] == [()] * len(QUIET)


def test_since_when() -> None:
    symptom = newest(LeftInEvaluation(), SICK[0])
    assert symptom is not None
    assert (symptom.severity, symptom.first_step) == ("warning", 5)
    assert symptom.message.startswith("Model trains in evaluation mode from step 5 on")


def test_what_is_off() -> None:
    by_modules, by_draws = (newest(LeftInEvaluation(), window) for window in SICK)
    assert by_modules is not None
    assert by_modules.message.endswith("normalisation does not follow the batches")
    assert by_draws is not None
    assert by_draws.message.endswith("draws none now, so dropout is off")


def test_from_the_first_step_on() -> None:
    norms = newest(LeftInEvaluation(), looked(new_norms_off__Model=[1.0], dropout_off__Model=[1.0]))
    dropout = newest(LeftInEvaluation(), looked(dropout_off__Model=[1.0]))
    assert norms is not None
    assert (norms.severity, norms.first_step) == ("warning", 1)
    assert norms.message.startswith("Model trains in evaluation mode from the first step on: its batch norms")
    assert dropout is not None
    assert dropout.severity == "note"
    assert "its dropout is off" in dropout.message
