"""A NaN that the script writes into a batch as a number is a fault of its data, not of an operation."""

from __future__ import annotations

from dataclasses import replace

import builders
from steadytrain.core.incident import CONSTANT, Finding
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.experiments.case import Case
from trial_cases import finite_case

SYMPTOM = Symptom("nonfinite-loss", "critical", 9, 9, "the loss is NaN")


def case_of(why: str, phase: str = "preprocessing") -> Case:
    located = replace(
        builders.located(code="rows[5, 2] = float('nan')"), phase=phase, operation="aten.lift_fresh.default", module=""
    )
    finding = Finding(located, f"{why}; it reached the loss")
    return finite_case(symptom=SYMPTOM, symptoms=(SYMPTOM,), onset=9, step=9, facts={}, finding=finding)


def test_a_number_that_the_script_writes_into_the_batch_is_named_with_its_line() -> None:
    cause = causes()["nonfinite-input"]
    written = cause.signature(case_of(f"{CONSTANT}: aten.lift_fresh.default put NaN there as a constant"))
    made = cause.signature(case_of("aten.div.Tensor is the first operation to make NaN out of inputs without it"))
    elsewhere = cause.signature(case_of(f"{CONSTANT}: aten.where put NaN there as a constant", phase="loss"))
    assert any("the script itself writes" in sign.what and "float('nan')" in sign.what for sign in written.signs)
    assert written.weight > 0 > max(made.weight, elsewhere.weight)
