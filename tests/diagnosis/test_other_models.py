"""An optimizer of another model, a product of 0 and Inf, a table with Inf: what the script did names the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from steadytrain.core.incident import UNKNOWN_OWNER, Finding, Located, OperandRange
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause import CERTAIN
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.case import Case
from trial_cases import finite_case

CAUSES = causes()
WITHOUT = Symptom("optimizer-without-gradients", "warning", 1, 90, "AdamW has made 64 steps without a gradient")
OUTSIDE = Symptom("parameters-outside-optimizer", "note", 2, 90, "6 parameters in none", numbers={"share": 1.0})


def first(case: Case) -> str:
    return next(iter(weigh([Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()], ())))


def case_of(*symptoms: Symptom, **parts: Any) -> Case:
    return replace(finite_case(symptom=symptoms[0], symptoms=symptoms), **parts)


def test_an_optimizer_of_a_copy_is_no_cut_graph() -> None:
    assert first(case_of(WITHOUT, OUTSIDE)) == "parameters-not-in-optimizer"
    assert first(case_of(WITHOUT)) == "detached-graph"
    a_part = replace(OUTSIDE, numbers={"share": 0.4})
    assert first(case_of(WITHOUT, a_part)) == "detached-graph"


def test_an_optimizer_of_a_head_that_was_replaced_holds_tensors_of_no_module() -> None:
    replaced = replace(OUTSIDE, severity="warning", numbers={"share": 0.1, "strangers": 2.0})
    case = case_of(Symptom("divergence", "critical", 90, 92, "the loss drifts up"), replaced)
    assert first(case) == "parameters-not-in-optimizer"
    told = CAUSES["parameters-not-in-optimizer"].signature(case)
    assert told.broken_invariant is not None
    assert "2 tensors that no module has any more" in told.broken_invariant.what


NAN = Symptom("nonfinite-loss", "critical", 90, 90, "the loss is NaN")


def product(zeros: int, infinite: int, operation: str = "aten.mul.Tensor") -> Finding:
    given = (OperandRange("self", (4,), zeros=zeros), OperandRange("other", (4,), inf=infinite))
    code = "-(logp.exp() * logp).sum(-1)"
    where = Located("loss", operation, "nan", "", "train.py", 42, code, given, (), "the loss", "traced")
    return Finding(where, "found")


@pytest.mark.parametrize(
    ("finding", "is_certain"),
    [(product(3, 3), True), (product(0, 3), False), (product(3, 0), False), (product(3, 3, "aten.add.Tensor"), False)],
    ids=["0 times Inf", "no 0", "no Inf", "a sum"],
)
def test_zero_times_infinity_is_undefined(finding: Finding, is_certain: bool) -> None:
    signs = CAUSES["singular-operation"].signature(case_of(NAN, finding=finding)).signs
    assert any(sign.weight >= CERTAIN and "multiplied 0 by Inf" in sign.what for sign in signs) is is_certain


def test_a_table_that_a_division_by_zero_filled_before_the_steps() -> None:
    held = Finding(None, f"{UNKNOWN_OWNER} held +Inf: float32 [1000], first read by aten.index.Tensor")
    division = {"operation": "div", "line": "train.py:20: snr = abar / (1 - abar)", "smallest": 0.0, "zeros": 1}
    case = case_of(NAN, finding=held, facts={"singular_calls": [division]})
    assert first(case) == "singular-operation"
    near = {**division, "zeros": 0}
    signs = CAUSES["singular-operation"].signature(replace(case, facts={"singular_calls": [near]})).signs
    assert not any(sign.weight >= CERTAIN for sign in signs)
