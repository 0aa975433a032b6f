"""Every shipped trial plans what it planned before: the keys of its specs, or why it does not apply, as a text file.

The file holds the trials that were there when it was written; a new one needs no line in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_catalog import trial
from trial_cases import finite_case

TRIALS_THEN = 72
PLANS = Path(__file__).parent / "trial_plans.txt"
FACTS = {
    "router_share": {"router": 0.9},
    "causal_gradient": 1.5,
    "label_shift_trained": 2,
    "label_shift": 2,
    "positions_low_precision": ["inv_freq"],
    "autocast_dtype": "float16",
    "parameter_dtypes": {"float32": 3},
    "pad_label": 3,
    "loss_functions": ["cross_entropy", "mse_loss"],
    "scaler": True,
    "tied_broken": [["head.weight", "embed.weight"]],
    "labels_leaked": [{"input": 2, "row": 0}],
    "custom_operations": ["Swish"],
    "detached_calls": ["train.py:12:detach"],
    "no_grad_calls": ["encoder"],
    "parameters_without_gradient": ["encoder.weight"],
}
SPIKE = finite_case()
CASES: Mapping[str, Case] = {
    "spike": SPIKE,
    "facts": finite_case(facts=FACTS),
    "float32": finite_case(facts={"autocast_dtype": None, "parameter_dtypes": {"float32": 3}, "scaler": False}),
    "no-tape": finite_case(begins=(), taped=()),
    "late": finite_case(begins=(95,)),
    "long": finite_case(begins=(), taped=(), step_s=10.0),
    "stuck": finite_case(symptom=replace(SPIKE.symptoms[0], name="no-learning"), facts=FACTS),
    "quiet": finite_case(symptom=None, window=SPIKE.window.slice(0, 0)),
    "ranks": finite_case(facts={"ranks": 4}),
}


def planned_text(case: Case, one: Trial) -> str:
    plan = one.plan(case)
    return f"not: {plan.why}" if isinstance(plan, NotApplicable) else " ".join(spec.key for spec in plan)


@pytest.mark.parametrize("name", CASES)
def test_every_trial_plans_what_it_planned(name: str) -> None:
    lines = (line.split(" ", 2) for line in PLANS.read_text(encoding="utf-8").splitlines())
    wanted = {known: text for case, known, text in lines if case == name}
    assert len(wanted) == TRIALS_THEN
    assert {known: planned_text(CASES[name], trial(known)) for known in wanted} == wanted
