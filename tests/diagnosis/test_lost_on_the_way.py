"""Changes of copies that are thrown away, and differences that are rounded away, as the survey saw them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import Change, NotApplicable, Verdict
from steadytrain.experiments.trial_catalog import trial
from trial_cases import finite_case

CAUSES = causes()
WRITE = {
    "line": "train.py:31: due[places] = 0.0",
    "by": "__setitem__",
    "copied": "reshape",
    "copy_line": "train.py:28: due = memory.reshape(-1)",
    "times": 124,
    "step": 2,
}
ROUNDED = {
    "operation": "remainder",
    "line": "train.py:25: phase = torch.remainder(t, 180.0)",
    "dtype": "float32",
    "distance": 128.0,
    "largest": 1.7e9,
    "step": 1,
}
RISES = Symptom("divergence", "critical", 28, 90, "the loss rises")


def case_of(facts: dict[str, Any], symptom: Symptom = RISES) -> Case:
    return replace(finite_case(symptom=symptom, symptoms=(symptom,)), facts={"surveyed_steps": 32, **facts})


def order(case: Case, *verdicts: Verdict) -> list[str]:
    return list(weigh([Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()], verdicts))


@pytest.mark.parametrize(
    ("copied", "said"),
    [("reshape", "`reshape` made at train.py:28 (`due = memory.reshape(-1)`)"), ("__getitem__", "an index made")],
)
def test_a_change_that_is_thrown_away_is_named_with_its_lines(copied: str, said: str) -> None:
    case = case_of({"discarded_writes": [{**WRITE, "copied": copied}]})
    (what,) = [sign.what for sign in CAUSES["discarded-changes"].signature(case).signs if sign.invariant]
    assert what.startswith("train.py:31 (`due[places] = 0.0`) changes a copy that ")
    assert said in what
    assert order(case)[0] == "discarded-changes"


def test_smaller_steps_that_help_do_not_clear_it() -> None:
    case = case_of({"discarded_writes": [WRITE], "update_ratio_median": 0.04})
    helped = [Verdict("learning-rate-third", "removed"), Verdict("learning-rate-tenth", "removed")]
    assert order(case, *helped)[0] == "discarded-changes"
    assert order(case, *helped, Verdict("kept-changes", "removed"))[0] == "discarded-changes"


def test_a_remainder_that_is_lost_in_the_rounding_is_named_with_its_numbers() -> None:
    case = case_of({"rounded_differences": [ROUNDED]}, Symptom("no-learning", "warning", 1, 90, "said by hand"))
    (what,) = [sign.what for sign in CAUSES["low-precision-positions"].signature(case).signs if sign.invariant]
    assert what.startswith(
        "the remainder at train.py:25 (`phase = torch.remainder(t, 180.0)`) is one of numbers up to "
    )
    assert "multiples of 128" in what
    assert order(case)[0] == "low-precision-positions"


def test_a_variance_that_cancels_is_named_with_its_numbers_and_not_as_positions() -> None:
    line = "train.py:39: variance = squares / count - mean.pow(2)"
    variance = {
        **ROUNDED,
        "operation": "variance",
        "line": line,
        "largest": 1.03e10,
        "distance": 1024.0,
        "left": -2048.0,
    }
    dead = {"dead_units": {"1": 1.0}, "cancelled_variances": [variance]}
    case = case_of(dead, Symptom("no-learning", "warning", 1, 90, "said by hand"))
    (what,) = [sign.what for sign in CAUSES["cancelled-variance"].signature(case).signs if sign.invariant]
    assert what.startswith(
        "the variance at train.py:39 (`variance = squares / count - mean.pow(2)`) is a difference of "
    )
    assert "squares near 1.03e+10 in float32, whose neighbours are 1.02e+03 apart, and -2.05e+03 is left" in what
    assert order(case)[0] == "cancelled-variance"
    assert not any(sign.invariant for sign in CAUSES["low-precision-positions"].signature(case).signs)


@pytest.mark.parametrize("name", ["discarded-changes", "low-precision-positions", "cancelled-variance"])
def test_without_them_a_surveyed_run_rules_it_out(name: str) -> None:
    assert CAUSES[name].signature(case_of({})).ruled_out


def test_memory_of_a_context_that_is_overwritten_is_named() -> None:
    facts = {
        "custom_operations": ["Sine"],
        "custom_gradient_error": {"Sine": 1e-6},
        "overwritten_contexts": [{"operation": "Sine", "attribute": "z", "applications": 72}],
    }
    case = case_of(facts, Symptom("no-learning", "warning", 1, 90, "said by hand"))
    (what,) = [sign.what for sign in CAUSES["custom-operation-fault"].signature(case).signs if sign.invariant]
    assert what.startswith("Sine keeps `ctx.z` for its backward in memory that was overwritten before the backward")
    assert order(case)[0] == "custom-operation-fault"
    plan = trial("own-contexts").plan(case)
    assert not isinstance(plan, NotApplicable)
    assert plan[0].changes == (Change("own-contexts", {"operations": ["Sine"]}),)
    assert isinstance(trial("own-contexts").plan(case_of({})), NotApplicable)


DROPPED = Symptom("dropped-result", "warning", 1, 90, "train.py:24, scores.masked_fill(...), changes nothing in place")
TURNED = Symptom("reversed-straight-through", "warning", 1, 90, "train.py:23 reverses the estimator")
COLLAPSE = Symptom("expert-load-collapse", "warning", 60, 90, "one of 4 experts has all tokens")


def test_a_mask_that_is_dropped_is_told_with_the_leak_that_it_leaves() -> None:
    case = case_of({"causal_gradient": 0.4, "label_shift_trained": 1}, DROPPED)
    told = [sign for sign in CAUSES["causal-leak"].signature(case).signs if sign.source == "symptom dropped-result"]
    assert [sign.what for sign in told] == [DROPPED.message]
    other = replace(DROPPED, message="train.py:24, h.detach(...), changes nothing in place")
    for quiet in (case_of({}, DROPPED), case_of({"causal_gradient": 0.4}, other)):
        signs = CAUSES["causal-leak"].signature(quiet).signs
        assert not any(sign.source == "symptom dropped-result" for sign in signs)
    assert order(case_of({}, DROPPED))[0] == "discarded-changes"


def test_a_choice_with_a_reversed_gradient_is_not_mended_by_a_balance() -> None:
    facts = {"surveyed_steps": 32, "router_share": {"router": 0.8}, "router_experts": {"router": 4}}
    case = replace(finite_case(symptom=COLLAPSE, symptoms=(COLLAPSE, TURNED)), facts=facts)
    assert order(case)[0] == "reversed-straight-through"
    assert order(replace(case, symptoms=(COLLAPSE,)))[0] == "router-collapse"
