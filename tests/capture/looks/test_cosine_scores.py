"""A softmax over cosines, with and without a temperature."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.capture.looks.loss_graph import read_graph

Scores = Callable[[Tensor, Tensor], Tensor]


def cosines(one: Tensor, other: Tensor) -> Tensor:
    return functional.normalize(one, dim=-1) @ functional.normalize(other, dim=-1).t()


def misuses(scores: Scores, *, choices: int = 16) -> dict[str, float]:
    torch.manual_seed(0)
    left, right = nn.Linear(8, 12), nn.Linear(8, 12)
    found = scores(left(torch.randn(16, 8)), right(torch.randn(choices, 8)))
    return read_graph(functional.cross_entropy(found, torch.arange(16) % choices)).misuses


@pytest.mark.parametrize(
    "scores",
    [cosines, lambda a, b: 1.0 * cosines(a, b), lambda a, b: cosines(a, b) / 1.0],
    ids=["plain", "times one", "over one"],
)
def test_cosines_without_a_temperature(scores: Scores) -> None:
    assert misuses(scores) == {"unscaled-cosines": 1.0}


SCALE = nn.Parameter(torch.tensor(2.6592))


@pytest.mark.parametrize(
    "scores",
    [
        lambda a, b: cosines(a, b) / 0.5,
        lambda a, b: cosines(a, b) * SCALE.exp(),
        lambda a, b: a @ b.t(),
        lambda a, b: functional.normalize(a, dim=-1) @ b.t(),
    ],
    ids=["temperature", "learned scale", "inner products", "one side normalised"],
)
def test_others_are_left_alone(scores: Scores) -> None:
    assert misuses(scores) == {}


def test_few_choices_need_no_temperature() -> None:
    assert misuses(cosines, choices=4) == {}
