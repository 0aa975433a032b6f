"""A rule that the run itself saw broken is an answer, with or without a survey and trials."""

from __future__ import annotations

import pytest

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.answer import Diagnosis, RankedCause
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.conclusion import Circumstances, conclude, in_words
from steadytrain.diagnosis.fix_order import fitting
from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.suspects import suspects_of
from steadytrain.experiments.specs import Effect, Verdict
from steadytrain.grouping.catalog import detector_name, detectors
from trial_cases import finite_case

STATED = {
    "parameters-outside-optimizer": "parameters-not-in-optimizer",
    "gradients-carried-over": "missing-zero-grad",
    "clipped-after-step": "clip-before-unscale",
    "clipped-while-scaled": "clip-before-unscale",
    "clipped-nothing": "unclipped-gradients",
    "worker-duplicates": "repeated-data",
    "optimizer-without-gradients": "detached-graph",
    "misused-loss": "loss-function-misuse",
    "broadcast-loss": "shape-broadcast",
    "unreachable-targets": "infeasible-target",
    "flat-derivative": "piecewise-activation",
    "undrawn-rows": "repeated-data",
}


def answered(name: str, severity: str = "warning", **numbers: float) -> Diagnosis:
    """The answer for a run that shows one symptom, without a survey, and without a trial that decides."""
    seen = Symptom(name, severity, 2, 90, f"{name} was seen", numbers=numbers)  # type: ignore[arg-type]
    case = finite_case(symptom=seen, symptoms=(seen,), facts={})
    known = Circumstances(in_words(seen), Control(True, True, True, "the loss ends at 8"), False, (), "run", spent=True)
    verdicts = [Verdict("learning-rate-third", "persists"), Verdict("unchanged", "persists")]
    return conclude(suspects_of(case), verdicts, known)


def first(name: str, severity: str = "warning", **numbers: float) -> RankedCause:
    return answered(name, severity, **numbers).diagnoses[0]


@pytest.mark.parametrize("name", STATED)
def test_a_rule_that_the_run_saw_broken_is_likely_without_a_survey_and_trials(name: str) -> None:
    answer = answered(name)
    assert (answer.verdict, answer.status) == (STATED[name], "likely")


def test_every_detector_that_states_a_fact_names_its_cause() -> None:
    stating = {detector_name(type(one)) for one in detectors() if one.states_fact}
    assert stating <= STATED.keys()


def test_a_note_of_parameters_in_no_optimizer_stays_possible() -> None:
    assert answered("parameters-outside-optimizer", "note").status is None


@pytest.mark.parametrize("unregistered", [0.0, 1.0])
def test_a_module_list_is_offered_for_modules_in_a_plain_list_alone(unregistered: float) -> None:
    names = [one.name for one in first("parameters-outside-optimizer", unregistered=unregistered).interventions]
    assert "optimize-all" in names
    assert ("register-modules" in names) is bool(unregistered)


@pytest.mark.parametrize("meets", ["table", "column"])
def test_the_fix_of_a_broadcast_loss_is_that_of_the_shapes_that_met(meets: str) -> None:
    names = [one.name for one in first("broadcast-loss", rows=64.0, **{meets: 1.0}).interventions]
    assert names == {"table": ["targets-without-table"], "column": ["match-shapes"]}[meets]


def test_shapes_that_a_survey_saw_choose_the_fix() -> None:
    cause = causes()["shape-broadcast"]
    for target, key in (("[64, 64], a table since [64] met [64, 1] at a.py:6", "table"), ("[64]", "column")):
        case = finite_case(facts={"broadcast": [f"a.py:7: mse(x, y): [64, 1] with {target}"]})
        (sign, *_) = cause.signature(case).signs
        assert sign.numbers.keys() == {"broadcast", key}
        assert [one.of for one in fitting(cause.interventions, cause.signature(case), ())] == [(key,)]


@pytest.mark.parametrize(
    ("tenth", "expected"), [("persists", "possible"), ("removed", "likely"), ("not-run", "likely")]
)
def test_a_cause_of_which_two_cures_failed_is_at_most_possible(tenth: Effect, expected: str) -> None:
    """Unless a rule is broken: the size of the first update is none."""
    seen = Symptom("no-learning", "warning", 2, 90, "no-learning was seen")
    facts = {"update_ratio_first_median": 1.7, "betas": [0.9, 0.999]}
    case = finite_case(symptom=seen, symptoms=(seen,), facts=facts)
    known = Circumstances(in_words(seen), Control(True, True, True, "the loss ends at 8"), False, (), "run", spent=True)
    verdicts = [Verdict("learning-rate-third", "persists"), Verdict("learning-rate-tenth", tenth)]
    found = {one.cause: one.status for one in conclude(suspects_of(case), verdicts, known).diagnoses}
    assert found["learning-rate-too-high"] == expected
