"""Sums over the whole batch that are added to the values of single rows, and sums that are meant."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.loss_graph import read_graph

ROWS, WIDTH = 16, 4
Loss = Callable[[Tensor, nn.Linear], Tensor]


def rows(loss: Loss) -> float | None:
    torch.manual_seed(0)
    layer = nn.Linear(8, WIDTH)
    return read_graph(loss(layer(torch.randn(ROWS, 8)), layer)).misuses.get("batch-total")


COUNTED_AGAIN: dict[str, Loss] = {
    "log-determinant": lambda s, _: -(s.pow(2).sum(1) + s.sum()).mean(),
    "of two layers, with a constant": lambda s, _: (
        -(-0.5 * s.pow(2).sum(1) - WIDTH * math.log(6.28) + (s.sum() + s.tanh().sum())).mean()
    ),
    "a weighted divergence": lambda s, _: (s.abs().mean(1) + 0.1 * (s.exp() - 1 - s).sum()).mean(),
    "all summed": lambda s, _: (s.abs().mean(1) - s.sum()).sum() / ROWS,
}
MEANT: dict[str, Loss] = {
    "per row": lambda s, _: -(s.pow(2).sum(1) + s.sum(1)).mean(),
    "averaged over the batch": lambda s, _: (s.abs().mean(1) + s.exp().sum(1).mean()).mean(),
    "divided by the rows": lambda s, _: (s.abs().mean(1) + 0.1 * (s.exp().sum() / ROWS)).mean(),
    "a penalty of weights": lambda s, layer: (s.abs().mean(1) + 1e-4 * layer.weight.pow(2).sum()).mean(),
    "all terms summed": lambda s, _: s.pow(2).sum() + s.sum(),
    "a mean beside a sum": lambda s, _: s.pow(2).sum(1).mean() + 0.1 * s.sum(),
    "normalised by the sum of all": lambda s, _: (s.exp().sum(1) / s.exp().sum()).log().mean(),
}


@pytest.mark.parametrize("loss", COUNTED_AGAIN.values(), ids=list(COUNTED_AGAIN))
def test_a_sum_over_the_batch_in_each_row_is_found(loss: Loss) -> None:
    assert rows(loss) == ROWS


@pytest.mark.parametrize("loss", MEANT.values(), ids=list(MEANT))
def test_sums_that_are_meant_are_left(loss: Loss) -> None:
    assert rows(loss) is None


def test_a_penalty_of_as_many_weights_as_rows_is_left() -> None:
    layer = nn.Linear(8, ROWS)
    loss = (layer(torch.randn(ROWS, 8)).abs().mean(1) + layer.weight.pow(2).sum()).mean()
    assert "batch-total" not in read_graph(loss).misuses
