"""Models that are linear as a whole, and models that look like them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.capture.looks.loss_graph import read_graph


class ByHand(nn.Module):
    """A ReLU that is written as a product with a mask."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (x > 0).float()


def layers(*between: nn.Module, hidden: int = 64) -> int:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, hidden), *between, nn.Linear(hidden, 3))
    loss = functional.cross_entropy(model(torch.randn(8, 10)), torch.arange(8) % 3)
    return read_graph(loss).linear_layers


@pytest.mark.parametrize(
    "between",
    [(), (nn.Dropout(0.2),), (nn.BatchNorm1d(64),), (nn.BatchNorm1d(64), nn.Dropout(0.5)), (nn.Identity(),)],
    ids=["nothing", "dropout", "batch norm", "both", "identity"],
)
def test_a_model_of_layers_alone(between: tuple[nn.Module, ...]) -> None:
    assert layers(*between) == 2


@pytest.mark.parametrize(
    "between",
    [
        (nn.ReLU(),),
        (nn.Tanh(),),
        (nn.LayerNorm(64),),
        (ByHand(),),
        (nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)),
        (nn.Dropout(0.5), nn.LeakyReLU()),
    ],
    ids=["relu", "tanh", "layer norm", "relu by hand", "one activation", "dropout before it"],
)
def test_anything_nonlinear(between: tuple[nn.Module, ...]) -> None:
    assert layers(*between) == 0


def test_a_factorisation() -> None:
    assert layers(hidden=2) == 0


def test_one_layer() -> None:
    loss = functional.cross_entropy(nn.Linear(10, 3)(torch.randn(8, 10)), torch.arange(8) % 3)
    assert read_graph(loss).linear_layers == 0


def images(*between: nn.Module) -> int:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), *between, nn.Conv2d(8, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    )
    loss = functional.cross_entropy(model(torch.randn(8, 1, 9, 9)), torch.arange(8) % 3)
    return read_graph(loss).linear_layers


def test_convolutions() -> None:
    assert (images(), images(nn.BatchNorm2d(8)), images(nn.ReLU()), images(nn.MaxPool2d(2))) == (3, 3, 0, 0)


def test_recurrent_layers_and_products_of_embeddings() -> None:
    cells, head = nn.LSTM(10, 16, batch_first=True), nn.Linear(16, 3)
    states = cells(torch.randn(8, 5, 10))[0]
    assert read_graph(functional.cross_entropy(head(states[:, -1]), torch.arange(8) % 3)).linear_layers == 0
    users, items, ids = nn.Embedding(20, 8), nn.Embedding(20, 8), torch.arange(16)
    assert read_graph(((users(ids) * items(ids)).sum(-1) - 1.0).square().mean()).linear_layers == 0
