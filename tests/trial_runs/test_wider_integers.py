"""Lines whose integers wrap, in 64 bits."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.survey.script_lines import line_of, script_frame
from steadytrain.trial_runs.changes.wider_integers import WiderIntegers
from steadytrain.trial_runs.function_stand_ins import Functions


def line_here() -> str:
    frame = script_frame()
    assert frame is not None
    return line_of(frame)


def summed() -> tuple[Tensor, str]:
    return operator.iadd(torch.tensor([100, 1], dtype=torch.int8), 100), line_here()


def written() -> tuple[Tensor, str]:
    return torch.tensor([100, 1], dtype=torch.int8).add_(100), line_here()


def cast_down() -> tuple[Tensor, str]:
    return torch.tensor([300, 1]).to(torch.uint8), line_here()


@pytest.mark.parametrize(
    ("operation", "expected", "dtype"),
    [(summed, [127, 101], torch.int8), (written, [127, 101], torch.int8), (cast_down, [300, 1], torch.int64)],
)
@pytest.mark.parametrize("other_line", [False, True])
def test_only_those_lines_are_widened(
    operation: Any, expected: list[int], dtype: torch.dtype, other_line: bool
) -> None:
    before, line = operation()
    change = WiderIntegers(["train.py:1: other"] if other_line else [line])
    functions = Functions()
    change.begin(cast(Any, SimpleNamespace(functions=functions)))
    try:
        result, _ = operation()
    finally:
        functions.end()
    assert change.touched == (not other_line)
    if other_line:
        assert torch.equal(result, before)
    else:
        assert (result.tolist(), result.dtype) == (expected, dtype)
