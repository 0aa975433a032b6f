"""A softmax over one score, and those over several."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph

PLACES = 6


class Pool(nn.Module):
    def __init__(self, weigh: Callable[[Tensor], Tensor], units: int = 1) -> None:
        super().__init__()
        self.score, self.weigh = nn.Linear(8, units), weigh

    def forward(self, h: Tensor) -> Tensor:
        return (self.weigh(self.score(torch.tanh(h))) * h).sum(1)


def found(weigh: Callable[[Tensor], Tensor], units: int = 1, *, places: int = PLACES) -> float | None:
    torch.manual_seed(0)
    loss = Pool(weigh, units)(torch.randn(4, places, 8)).pow(2).mean()
    return read_graph(loss).misuses.get("weights-of-one")


@pytest.mark.parametrize("dim", [-1, 2])
def test_a_softmax_over_one_score_is_found(dim: int) -> None:
    assert found(lambda scores: scores.softmax(dim)) == PLACES


HEALTHY: dict[str, tuple[Callable[[Tensor], Tensor], int, int]] = {
    "over the places": (lambda scores: scores.softmax(1), 1, PLACES),
    "squeezed": (lambda scores: scores.squeeze(-1).softmax(-1).unsqueeze(-1), 1, PLACES),
    "a gate": (lambda scores: scores.sigmoid(), 1, PLACES),
    "several heads": (lambda scores: scores.softmax(-1), 8, PLACES),
    "one place": (lambda scores: scores.softmax(-1), 1, 1),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_others_are_not(name: str) -> None:
    weigh, units, places = HEALTHY[name]
    assert found(weigh, units, places=places) is None
