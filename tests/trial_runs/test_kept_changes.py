"""Changes of copies, written back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.experiments.trials.kept_changes import KeptChanges as Planned
from steadytrain.survey.script_lines import line_of, script_frame
from steadytrain.trial_runs.changes.kept_changes import KeptChanges
from steadytrain.trial_runs.function_stand_ins import Functions
from trial_cases import finite_case


def line_here() -> str:
    frame = script_frame()
    assert frame is not None
    return line_of(frame)


def reshaped(x: Tensor) -> tuple[str, str]:
    flat, copied = x.t().reshape(-1), line_here()
    flat[0], written = 9.0, line_here()
    return copied, written


def cast_and_flat(x: Tensor) -> tuple[str, str]:
    flat, copied = x.to(torch.float64).flatten(), line_here()
    flat[0], written = 9.0, line_here()
    return copied, written


def masked(x: Tensor) -> tuple[str, str]:
    part, copied = x[x == 0.0], line_here()
    part[0], written = 9.0, line_here()
    return copied, written


def selected(x: Tensor) -> tuple[str, str]:
    rows, copied = x.index_select(0, torch.tensor([0])), line_here()
    rows[0, 0], written = 9.0, line_here()
    return copied, written


@pytest.mark.parametrize(
    ("operation", "name"),
    [(reshaped, "reshape"), (cast_and_flat, "to"), (masked, "__getitem__"), (selected, "index_select")],
)
@pytest.mark.parametrize("other_line", [False, True])
def test_only_the_copies_of_these_lines_are_written_back(operation: Any, name: str, other_line: bool) -> None:
    before = torch.arange(6.0).view(2, 3)
    copied, written = operation(before)
    assert before[0, 0] == 0.0
    change = KeptChanges(["train.py:1: other"] if other_line else [written], ["__setitem__"], [name], [copied])
    functions = Functions()
    change.begin(cast(Any, SimpleNamespace(functions=functions)))
    try:
        operation(before)
    finally:
        functions.end()
    assert change.touched == (not other_line)
    assert before.flatten().tolist() == [0.0 if other_line else 9.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_it_is_planned_for_lines_that_the_survey_found() -> None:
    assert not isinstance(Planned().plan(finite_case(facts={})), tuple)
    one = {
        "line": "a.py:4: y[i] = 0",
        "by": "__setitem__",
        "copied": "reshape",
        "copy_line": "a.py:2: y = x.reshape(-1)",
    }
    planned = Planned().plan(finite_case(facts={"discarded_writes": [one]}))
    assert isinstance(planned, tuple)
    (change,) = planned[0].changes
    assert change.values["lines"] == ["a.py:4: y[i] = 0"]
    assert change.values["copy_lines"] == ["a.py:2: y = x.reshape(-1)"]
