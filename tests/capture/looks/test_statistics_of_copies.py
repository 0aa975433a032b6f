"""Copies of the weights that are evaluated with the running statistics they began with, and copies that are not."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from watching import watching

STEPS = 100

Update = Callable[[nn.Module, nn.Module], None]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


def weights(held: nn.Module, model: nn.Module) -> None:
    for one, other in zip(held.parameters(), model.parameters(), strict=True):
        one.lerp_(other, 0.1)


def weights_and_buffers(held: nn.Module, model: nn.Module) -> None:
    weights(held, model)
    for one, other in zip(held.buffers(), model.buffers(), strict=True):
        one.copy_(other)


def nothing(held: nn.Module, model: nn.Module) -> None:
    pass


def again(held: nn.Module, rows: Tensor) -> None:
    """As ``update_bn`` does it."""
    held.train()
    held(rows)
    held.eval()


def told(
    folder: Path,
    update: Update,
    *,
    before: Callable[[nn.Module, Tensor], object] = lambda held, rows: held.eval(),
    frozen: bool = False,
    every: int = 20,
) -> list[str]:
    torch.manual_seed(0)
    gc.collect()  # models of the tests before are copies, too
    with watching(folder / "run", "observe") as watcher:
        model = network()
        held = copy.deepcopy(model).requires_grad_(False).eval()
        if frozen:
            model[1].eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(1, STEPS + 1):
            x = 5.0 + 2.0 * torch.randn(32, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x)[:, 0], x[:, 0] - 5.0).backward()
            optimizer.step()
            with torch.no_grad():
                update(held, model)
                if step % every == 0:
                    before(held, x)
                    held(x)
    return [one.message for one in watcher.symptoms if one.name == "kept-statistics"]


@pytest.mark.parametrize("every", [20, 1], ids=["now and then", "in each step"])
def test_weights_without_buffers(tmp_path: Path, every: int) -> None:
    (message,) = told(tmp_path, weights, every=every)
    assert message.startswith("the averaged copy of Sequential that is evaluated follows the weights of the model")


@pytest.mark.parametrize("update", [weights_and_buffers, nothing])
def test_copies_that_are_whole(tmp_path: Path, update: Update) -> None:
    assert told(tmp_path, update) == []


@pytest.mark.parametrize("before", [again, lambda held, rows: held.train()], ids=["update_bn", "training mode"])
def test_statistics_that_move(tmp_path: Path, before: Callable[[nn.Module, Tensor], object]) -> None:
    assert told(tmp_path, weights, before=before) == []


def test_norms_of_the_model_that_stay(tmp_path: Path) -> None:
    assert told(tmp_path, weights, frozen=True) == []


def test_a_copy_that_is_not_evaluated(tmp_path: Path) -> None:
    assert told(tmp_path, weights, every=1000) == []
