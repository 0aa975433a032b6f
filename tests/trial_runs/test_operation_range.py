"""One line of the script that is limited to what it made before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch

from steadytrain.core.errors import UsageError
from steadytrain.experiments.specs import Change
from steadytrain.survey.script_lines import line_of, script_frame
from steadytrain.trial_runs.changes import make
from steadytrain.trial_runs.changes.operation_range import OperationAsBefore
from steadytrain.trial_runs.function_stand_ins import Functions

SMALL = torch.tensor([0.5, 1e-6])


def divided() -> tuple[torch.Tensor, str]:
    """A division, and its line as a survey names it."""
    result, line = torch.ones(2) / SMALL, line_here()
    return result, line


def line_here() -> str:
    frame = script_frame()
    assert frame is not None
    return line_of(frame)


@pytest.mark.parametrize(("other_line", "expected"), [(False, [2.0, 4.0]), (True, [2.0, 1e6])])
def test_only_that_line_is_limited(other_line: bool, expected: list[float]) -> None:
    line = "train.py:1: other" if other_line else divided()[1]
    change = OperationAsBefore("div", line, 4.0)
    functions = Functions()
    change.begin(cast(Any, SimpleNamespace(functions=functions)))
    try:
        result, _ = divided()
    finally:
        functions.end()
    assert result.tolist() == pytest.approx(expected)
    assert change.touched == (not other_line)


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="largest 0"):
        make(Change("operation-as-before", {"operation": "exp", "line": "train.py:1: x", "largest": 0.0}))
