"""A number that changed near the onset speaks for the cause that it is about."""

from __future__ import annotations

from typing import Any

import pytest

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial_catalog import trial
from trial_cases import finite_case

CAUSES = causes()
WENT = {"before": 0.2, "after": 40.0, "step": 90}
DECAY = {"kind": "optimizer", "name": "weight_decay", "option": "weight_decay", "group": "0", "place": "0", **WENT}
DROPOUT = {"kind": "module", "name": "p", "module": "drop", "attribute": "p", "of": "Dropout", **WENT}
SMOOTHING = {"kind": "operand", "name": "label_smoothing", "line": "t.py:3: x", "function": "cross_entropy", **WENT}
WEIGHT = {"kind": "operand", "name": "beta", "line": "t.py:9: loss = rec + beta * kl", "function": "__rmul__", **WENT}


def suspects(settings: list[dict[str, Any]], severity: Any = "warning") -> list[Suspect]:
    seen = Symptom("divergence", severity, 90, 92, "divergence was seen")
    case = finite_case(symptom=seen, symptoms=(seen,), facts={"settings_changed": settings, "weight_decay": 0.1})
    return [Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()]


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        (DECAY, "weight-decay-misuse"),
        (DROPOUT, "regularization-too-strong"),
        (SMOOTHING, "regularization-too-strong"),
        (WEIGHT, "changed-setting"),
    ],
    ids=["decay", "dropout", "smoothing", "weight"],
)
def test_the_number_names_its_cause(setting: dict[str, Any], cause: str) -> None:
    found = suspects([setting])
    assert next(iter(weigh(found, ()))) == cause
    told = next(one for one in found if one.name == cause).signature.signs[0].what
    assert "went from 0.2 to 40 at step 90" in told


def test_a_number_that_was_infinite_is_told() -> None:
    limit = {**WEIGHT, "before": "inf", "after": 50.0}  # as a document has it
    told = [sign.what for one in suspects([limit]) if one.name == "changed-setting" for sign in one.signature.signs]
    assert "went from inf to 50 at step 90" in told[0]


def test_without_a_change_or_a_symptom_it_is_no_cause() -> None:
    for found in (suspects([]), suspects([WEIGHT], "note")):
        assert next(one for one in found if one.name == "changed-setting").signature.ruled_out


def test_the_trial_puts_back_what_the_survey_saw_and_needs_that() -> None:
    plan = trial("old-settings").plan(finite_case(facts={"settings_changed": [DECAY]}))
    assert not isinstance(plan, NotApplicable)
    assert '"before": 0.2' in plan[0].changes[0].values["settings"][0]
    assert isinstance(trial("old-settings").plan(finite_case()), NotApplicable)
