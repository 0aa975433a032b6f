"""Data are called damaged only if they were so before the script worked on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steadytrain.core.incident import Finding, Located
from steadytrain.diagnosis.script_signs import LOADED
from steadytrain.method.evidence import Evidence
from steadytrain.method.step_results import _damaged

ENTRY = {"step": 150, "input": "0", "rows": [17], "count": 16}
BAD = {"batch_nonfinite": [ENTRY]}
MADE = {
    "operation": "div",
    "line": "train.py:16: x / s",
    "step": 150,
    "made": "NaN",
    "rows": [17],
    "before_model": True,
}
DIVIDED = Located("preprocessing", "aten.div.Tensor", "nan", "", "train.py", 16, "x / s", (), (), "the loss", "eager")


@pytest.mark.parametrize(
    ("facts", "finding", "damaged"),
    [
        (BAD, None, True),
        ({**BAD, "nonfinite_made": [MADE]}, None, False),
        ({**BAD, "nonfinite_made": [{**MADE, "before_model": False}]}, None, True),
        ({"batch_nonfinite": [{**ENTRY, "input": f"0 {LOADED}"}], "nonfinite_made": [MADE]}, None, True),
        (BAD, Finding(DIVIDED, "div"), False),
    ],
)
def test_a_batch_that_the_script_spoilt_is_no_damaged_data(
    facts: dict[str, Any], finding: Finding | None, damaged: bool
) -> None:
    evidence = Evidence(Path("run"), None, {}, {}, None, "", {}, facts, finding)
    assert bool(_damaged(evidence)) is damaged
