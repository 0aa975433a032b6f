"""Gradients that a loss of another optimizer leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.foreign_gradients import ForeignGradients
from watching import watching

Optimizer = torch.optim.Optimizer
Loop = Callable[[nn.Module, nn.Module, Optimizer, Optimizer], None]


def fooled(critic: nn.Module, made: Tensor) -> Tensor:
    return nn.functional.softplus(-critic(made)).mean()


def told_apart(critic: nn.Module, made: Tensor) -> Tensor:
    real = torch.randn(32, 4) + 2.0
    return nn.functional.softplus(-critic(real)).mean() + nn.functional.softplus(critic(made.detach())).mean()


def cleared_once(maker: nn.Module, critic: nn.Module, first: Optimizer, second: Optimizer) -> None:
    first.zero_grad()
    second.zero_grad()
    made = maker(torch.randn(32, 4))
    fooled(critic, made).backward()
    first.step()
    told_apart(critic, made).backward()
    second.step()


def cleared_each(maker: nn.Module, critic: nn.Module, first: Optimizer, second: Optimizer) -> None:
    made = maker(torch.randn(32, 4))
    first.zero_grad()
    fooled(critic, made).backward()
    first.step()
    second.zero_grad()
    told_apart(critic, made).backward()
    second.step()


def critic_first(maker: nn.Module, critic: nn.Module, first: Optimizer, second: Optimizer) -> None:
    """The critic's gradient is stale when the maker's loss goes through it, and is cleared before it is used."""
    made = maker(torch.randn(32, 4))
    second.zero_grad()
    told_apart(critic, made).backward()
    second.step()
    first.zero_grad()
    fooled(critic, made).backward()
    first.step()


def through_the_maker(maker: nn.Module, critic: nn.Module, first: Optimizer, second: Optimizer) -> None:
    """The critic's losses go through the maker, several times, and what they leave there is cleared before its own."""
    for _ in range(3):
        critic.zero_grad()
        (critic(maker(torch.randn(32, 4))).mean() - critic(torch.randn(32, 4) + 2.0).mean()).backward()
        second.step()
    maker.zero_grad()
    (-critic(maker(torch.randn(32, 4))).mean()).backward()
    first.step()


def together(maker: nn.Module, critic: nn.Module, first: Optimizer, second: Optimizer) -> None:
    """Both losses, then both updates: that is one step of two optimizers."""
    first.zero_grad()
    second.zero_grad()
    made = maker(torch.randn(32, 4))
    (fooled(critic, made) + told_apart(critic, made)).backward()
    first.step()
    second.step()


def told(loop: Loop, folder: Path) -> list[str]:
    torch.manual_seed(0)
    maker, critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    with watching(folder, "observe") as watcher:
        first, second = (torch.optim.Adam(one.parameters(), lr=0.01) for one in (maker, critic))
        for _ in range(60):
            loop(maker, critic, first, second)
    return [one.severity for one in watcher.symptoms if one.name == "foreign-gradients"]


def test_gradients_that_are_cleared_once_an_iteration(tmp_path: Path) -> None:
    assert told(cleared_once, tmp_path) == ["warning"]


@pytest.mark.parametrize("loop", [cleared_each, critic_first, together, through_the_maker])
def test_gradients_that_are_cleared_or_belong_there(loop: Loop, tmp_path: Path) -> None:
    assert told(loop, tmp_path) == []


def test_the_cosine_is_of_what_was_left_and_what_came_on_top() -> None:
    one = nn.Parameter(torch.zeros(3))
    foreign = ForeignGradients()
    foreign.backward_begins([one])
    one.grad = torch.tensor([1.0, 0.0, 0.0])
    foreign.other_updated()
    foreign.backward_begins([one])
    one.grad = torch.tensor([1.0 - 3.0, 4.0, 0.0])
    assert dict(foreign.rows()) == {"foreign:gradients": pytest.approx(-0.6)}
    foreign.updated()
    assert dict(foreign.rows()) == {}
