"""What a case is about, once the whole story is known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from steadytrain.core.model import Severity, Symptom
from steadytrain.diagnosis.opening import as_recorded, looked, with_symptoms
from steadytrain.experiments.case import Case
from steadytrain.experiments.progress_file import Progress
from steadytrain.experiments.specs import NO_TIME_LEFT, Entry, Outcome, Spec, StepSeen
from steadytrain.trial_runs.diagnose import Request, _Bench, _put_back
from trial_cases import finite_case


def symptom(name: str, first_step: int, severity: Severity = "warning") -> Symptom:
    return Symptom(name, severity, first_step, first_step + 2, f"{name} was seen")


def case_of(name: str) -> Case:
    seen = symptom(name, 90)
    return finite_case(symptom=seen, symptoms=(seen,))


@pytest.mark.parametrize(
    ("own", "other", "led"),
    [
        ("gradient-norm-spike", symptom("update-norm-spike", 91), "update-norm-spike"),
        ("gradient-norm-spike", symptom("update-norm-spike", 91, "note"), "gradient-norm-spike"),
        ("gradient-norm-spike", symptom("update-norm-spike", 20), "gradient-norm-spike"),
        ("loss-spike", symptom("update-norm-spike", 91), "loss-spike"),
    ],
    ids=["of one story", "a note", "long before", "nearer to harm"],
)
def test_of_a_gradient_and_its_update_the_update_is_led_by(own: str, other: Symptom, led: str) -> None:
    found = with_symptoms(case_of(own), [other])
    assert found.symptom is not None
    assert found.symptom.name == led
    assert found.onset == 90
    assert found.symptoms[1:] == (other,)


@pytest.mark.parametrize(
    ("own", "step", "onset"),
    [("nonfinite-loss", 88, 88), ("nonfinite-loss", 10, 90), ("loss-spike", 88, 90)],
    ids=["the weight before", "another story", "a finite one"],
)
def test_a_loss_that_is_not_finite_began_with_the_weights(own: str, step: int, onset: int) -> None:
    assert with_symptoms(case_of(own), [symptom("nonfinite-weight", step)]).onset == onset


@pytest.mark.parametrize(
    ("facts", "ran", "exact"),
    [
        ({"survey_replayed": True, "replay_exact": True}, True, True),
        ({"survey_replayed": True, "replay_exact": False}, True, False),
        ({"survey_replayed": False}, False, None),
        ({}, False, None),
    ],
)
def test_without_a_symptom_the_survey_is_the_control(facts: dict[str, bool], ran: bool, exact: bool | None) -> None:
    control = looked(facts)
    assert (control.ran, control.exact, control.shown) == (ran, exact, False)


def test_a_run_from_the_beginning_is_held_against_the_recorded_losses() -> None:
    case = finite_case()
    losses = case.window.series("loss").values[:3].tolist()

    def outcome(seen: list[float]) -> Outcome:
        steps = tuple(StepSeen(place, loss, 1.0, math.isfinite(loss)) for place, loss in enumerate(seen))
        return Outcome(Spec("unchanged", 0, None, (Entry(None),) * 3), True, steps=steps)

    assert as_recorded(case, outcome(losses)) is True
    assert as_recorded(case, outcome([*losses[:2], losses[2] * (1 + 1e-15) + 1e-12])) is False
    assert as_recorded(case, replace(outcome(losses), steps=())) is None


def test_trials_that_no_time_was_left_for_wait_as_before() -> None:
    """They did not fail to tell causes apart: nobody asked them."""
    progress = Progress(Path("incident"))
    bench = _Bench(Request(Path("incident"), 60.0, 1), finite_case(), (), {}, {}, print, 0.0, lambda: 0.0, progress)
    specs = {name: Spec(name, 0, 1, ()) for name in ("unchanged", "drop-batch", "beta2-lower")}
    bench.outcomes = {
        "unchanged": [Outcome(specs["unchanged"], False, NO_TIME_LEFT)],
        "drop-batch": [Outcome(specs["drop-batch"], False, "it does not apply")],
        "beta2-lower": [Outcome(specs["beta2-lower"], False, NO_TIME_LEFT)],
    }
    _put_back(bench, tuple(specs))
    assert bench.spent
    assert list(bench.outcomes) == ["unchanged", "drop-batch"]
