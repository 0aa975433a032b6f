"""How many values batch norms normalise over."""

from __future__ import annotations

import torch
from torch import nn

from steadytrain.capture.looks.loss_graph import read_graph
from steadytrain.capture.looks.norm_values import usual_values


def values(model: nn.Module, *shape: int) -> list[int]:
    return read_graph(model(torch.randn(*shape)).square().sum()).norm_values


def test_rows_times_places() -> None:
    assert values(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), 3, 4) == [3]
    assert values(nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)), 2, 1, 5, 5) == [18]


def test_other_norms_and_evaluation_mode() -> None:
    assert values(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).eval(), 3, 4) == []
    assert values(nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)), 3, 4) == []


def test_half_of_them() -> None:
    assert [usual_values(one) for one in ([4], [4, 64], [4, 64, 256], [4, 4, 256])] == [4, 4, 64, 4]
