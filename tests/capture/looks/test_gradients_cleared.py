"""Gradients that are cleared between the backward and the step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from looked_loops import batch, found
from torch import nn

NAME = "cleared-gradients"
Turn = Callable[[nn.Module, torch.optim.Optimizer, torch.optim.Optimizer], None]


def loss_of(model: nn.Module) -> torch.Tensor:
    x, y = batch()
    return nn.functional.cross_entropy(model(x), y)


def cleared(model: nn.Module, optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    loss_of(model).backward()
    optimizer.zero_grad()
    optimizer.step()


def set_to_zero(model: nn.Module, optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    loss_of(model).backward()
    model.zero_grad(set_to_none=False)
    optimizer.step()


def of_another_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    loss_of(model).backward()
    other.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


def never_reached(model: nn.Module, optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    """The step of ``other`` finds no gradients, because its parameters are in no loss."""
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.zero_grad()
    other.step()


def put_back(model: nn.Module, optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    loss_of(model).backward()
    kept = [one.grad for one in model.parameters()]
    optimizer.zero_grad()
    for one, gradient in zip(model.parameters(), kept, strict=True):
        one.grad = gradient
    optimizer.step()


def run(folder: Path, turn: Turn) -> dict[str, str]:
    def begin() -> Callable[[int], None]:
        model, other = nn.Linear(8, 3), nn.Linear(8, 3)
        optimizers = [torch.optim.Adam(one.parameters(), lr=1e-3) for one in (model, other)]
        return lambda at: turn(model, *optimizers)

    return dict(found(folder, begin))


@pytest.mark.parametrize("turn", [cleared, set_to_zero])
def test_cleared_before_the_step(turn: Turn, tmp_path: Path) -> None:
    assert run(tmp_path, turn)[NAME] == "warning"


@pytest.mark.parametrize("turn", [of_another_optimizer, never_reached, put_back])
def test_others_are_left_alone(turn: Turn, tmp_path: Path) -> None:
    assert NAME not in run(tmp_path, turn)
