"""Inputs that lie far from zero are read by how far apart their numbers are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.coarse_inputs import coarse_rows
from steadytrain.capture.step.input_recorder import record_call


class Timed(nn.Module):
    def forward(self, time: Tensor) -> Tensor:
        return time.sin()


def share(time: Tensor) -> float | None:
    return dict(coarse_rows([record_call(Timed(), (time,), {}, None)])).get("coarse-input:time")


def test_seconds_since_1970_in_float32() -> None:
    torch.manual_seed(0)
    found = share((1.73e9 + 172_800 * torch.rand(128, dtype=torch.float64)).float())
    assert found is not None
    assert found > 1e-3


@pytest.mark.parametrize(
    "time",
    [
        172_800 * torch.rand(128),
        torch.randn(128, 4),
        torch.randn(128, 4).bfloat16(),
        torch.arange(128).float(),
        255 * torch.rand(128),
        1e6 + 1e4 * torch.randn(128),
    ],
)
def test_usual_inputs(time: Tensor) -> None:
    found = share(time)
    assert found is not None
    assert found < 1e-4


def test_a_sparse_input_is_left_alone() -> None:
    assert share(torch.eye(16).to_sparse()) is None


def test_one_number_for_all_rows_and_few_rows_are_not_told() -> None:
    assert share(torch.full((64,), 1.7e9)) == 0.0
    assert share(torch.randn(4)) is None
