"""Averages of the weights that follow the model too slowly, and copies that are no such average."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from watching import watching

STEPS = 200


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def average(decay: float) -> Callable[[Net, Net, int], None]:
    def update(held: Net, model: Net, step: int) -> None:
        for one, other in zip(held.parameters(), model.parameters(), strict=True):
            one.mul_(decay).add_(other, alpha=1 - decay)

    return update


def now_and_then(decay: float) -> Callable[[Net, Net, int], None]:
    """An average that follows in every tenth step."""

    def update(held: Net, model: Net, step: int) -> None:
        if step % 10 == 0:
            average(decay)(held, model, step)

    return update


def rounded(decay: float) -> Callable[[Net, Net, int], None]:
    """An average in bfloat16."""

    def update(held: Net, model: Net, step: int) -> None:
        held.bfloat16()
        for one, other in zip(held.parameters(), model.parameters(), strict=True):
            one.lerp_(other.bfloat16(), 1 - decay)

    return update


def copied(held: Net, model: Net, step: int) -> None:
    if step % 50 == 0:
        held.load_state_dict(model.state_dict())


def train(update: Callable[[Net, Net, int], None], *, every: int) -> None:
    torch.manual_seed(0)
    model = Net()
    held = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x)[:, 0], x.sum(1)).backward()
        optimizer.step()
        with torch.no_grad():
            update(held, model, step)
            if step % every == 0:
                held(x.to(next(held.parameters()).dtype))


@pytest.mark.parametrize(
    ("update", "every", "told"),
    [
        (average(0.999), 50, True),
        (average(0.99), 50, False),
        (now_and_then(0.99), 50, True),
        (now_and_then(0.8), 50, False),
        (rounded(0.995), 50, True),
        (rounded(0.5), 50, False),
        (average(0.999), 1, False),
        (average(0.999), 500, False),
        (copied, 50, False),
        (lambda *_: None, 50, False),
    ],
    ids=[
        "slow",
        "fast",
        "slow, in every tenth step",
        "fast, in every tenth step",
        "rounds away",
        "coarse steps in bfloat16",
        "runs in each step",
        "never evaluated",
        "copied now and then",
        "never updated",
    ],
)
def test_what_is_evaluated_and_stays_what_it_was(
    update: Callable[[Net, Net, int], None], every: int, told: bool, tmp_path: Path
) -> None:
    with watching(tmp_path, "observe") as watcher:
        train(update, every=every)
        gc.collect()  # the models are gone when the script ends
    assert ("slow-average" in {one.name for one in watcher.symptoms}) == told
