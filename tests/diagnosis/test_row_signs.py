"""Other data, the same rows again, and rows that were overwritten: other batches cure all three."""

from __future__ import annotations

from typing import Any

import pytest

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.proof import Control, proof
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import Verdict
from trial_cases import finite_case

CAUSES = causes()
SHIFT = {"data_shift": 5.4, "surveyed_rows": 496, "dataset_rows": 2000, "surveyed_steps": 31, "repeated_after": 1}
MINED = {**SHIFT, "repeated_batches": 0.45, "repeated_rows_before": 0.09, "repeated_rows_since": 0.88}
FEW_ROWS = {**SHIFT, "repeated_rows_before": 0.85, "repeated_rows_since": 0.88}
READ = {**SHIFT, "rows_change_when_read": {"attribute": "images", "row": 0}}
WRITTEN = {**SHIFT, "rows_written": {"line": "train.py:12: x.mul_(0.9)", "steps": 20}}


def suspects(facts: dict[str, Any]) -> dict[str, Suspect]:
    seen = Symptom("loss-spike", "warning", 90, 92, "loss-spike was seen")
    case = finite_case(symptom=seen, symptoms=(seen,), facts=facts)
    return {name: Suspect(name, cause, cause.signature(case)) for name, cause in CAUSES.items()}


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (SHIFT, "data-shift"),
        (MINED, "repeated-data"),
        (FEW_ROWS, "data-shift"),
        (READ, "overwritten-rows"),
        (WRITTEN, "overwritten-rows"),
    ],
    ids=["shift", "mined rows", "few rows, always", "read", "written"],
)
def test_rows_tell_the_three_apart(facts: dict[str, Any], first: str) -> None:
    assert next(iter(weigh(list(suspects(facts).values()), ()))) == first


@pytest.mark.parametrize(("facts", "proven"), [(SHIFT, True), ({**SHIFT, "data_shift": 0.6}, False), (MINED, False)])
def test_that_other_batches_help_proves_no_shift_of_batches_that_look_alike(
    facts: dict[str, Any], proven: bool
) -> None:
    """Wrong labels, repeated rows and overwritten ones are cured by other batches as well."""
    verdicts = {"fresh-data": Verdict("fresh-data", "removed"), "drop-batch": Verdict("drop-batch", "persists")}
    found = proof(
        suspects(facts)["data-shift"],
        verdicts,
        Control(True, True, True, ""),
        (),
        surveyed=True,
        contrasts={"fresh-data": Contrast("fresh-data", True, "")},
    )
    assert found.proven is proven
    assert proven or found.lacks.endswith(("was not seen itself", "its precondition is absent"))
