"""A NaN in the inputs of the model is reported where no line of the step can run again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from steadytrain.tracing.input_values import nan_in_data


def holding(value: float) -> Tensor:
    rows = torch.zeros(4, 3)
    rows[2, 1] = value
    return rows


def call(*args: Any, **kwargs: Any) -> Any:
    return SimpleNamespace(args=args, kwargs=kwargs)


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ([call(holding(float("nan")))], "args[0]"),
        ([call(torch.ones(2)), call(torch.arange(3), mask=None, x=holding(float("nan")))], "x"),
    ],
    ids=["an argument", "of the second micro-batch"],
)
def test_a_nan_of_the_data(calls: list[Any], name: str) -> None:
    said = f"the batch already holds NaN: {name}, 1 of 12 values, first at [2, 1], when the model got it"
    assert nan_in_data(calls) == said


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [call(torch.ones(2), torch.arange(3), "text")],
        [call(holding(float("-inf")))],
        [call(holding(float("nan")).requires_grad_() * 1)],
    ],
    ids=["no call", "finite", "a mask", "computed by a model"],
)
def test_no_data_to_blame(calls: list[Any]) -> None:
    assert nan_in_data(calls) == ""
