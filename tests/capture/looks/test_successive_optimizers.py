"""Optimizers that are made one after the other for the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import steadytrain
from steadytrain.storage.run_folder import open_run

Between = Callable[[nn.Module], None]
Make = Callable[[nn.Module, int], torch.optim.Optimizer]


def adam(model: nn.Module, epoch: int) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def plain_descent(model: nn.Module, epoch: int) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-2)


def of_another_rate(model: nn.Module, epoch: int) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3 / (1 + epoch))


def nothing(model: nn.Module) -> None:
    pass


def evaluates(model: nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        model(torch.ones(2, 4))
    model.train()


def takes_other_weights(model: nn.Module) -> None:
    """As a client of a federation takes the common ones."""
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.0)


def reported(folder: Path, make: Make, between: Between, *, epochs: int = 10, drops: bool = True) -> bool:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    with steadytrain.watch(model, runs_dir=folder, name="run", to=("none",)):
        for epoch in range(epochs):
            optimizer = make(model, epoch)
            for _ in range(6):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
            between(model)
            if drops:
                del optimizer
    return "short-lived-optimizer" in {one.name for one in open_run(folder / "run").symptoms}


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("between", [nothing, evaluates])
def test_anew_for_each_epoch(between: Between, drops: bool, tmp_path: Path) -> None:
    assert reported(tmp_path, adam, between, drops=drops)


def test_a_rate_that_is_set_by_a_new_optimizer_is_meant(tmp_path: Path) -> None:
    assert not reported(tmp_path, of_another_rate, nothing, drops=False)


@pytest.mark.parametrize(
    ("make", "between", "epochs"),
    [(adam, takes_other_weights, 10), (plain_descent, nothing, 10), (of_another_rate, nothing, 10), (adam, nothing, 6)],
    ids=["other weights", "no moments", "another rate", "few stages"],
)
def test_what_is_meant(make: Make, between: Between, epochs: int, tmp_path: Path) -> None:
    assert not reported(tmp_path, make, between, epochs=epochs)
