"""Which accumulations count as a sum of gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from watching import watching

Update = Callable[[nn.Module, torch.optim.Optimizer], None]


def loss_of(model: nn.Module, **how: object) -> Tensor:
    x = torch.randn(8, 6)
    return F.cross_entropy(model(x), x[:, :3].argmax(1), **how)  # type: ignore[arg-type]


def said(update: Update, folder: Path, *, sgd: bool = False, steps: int = 8) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    with watching(folder, "observe") as watcher:
        kind = torch.optim.SGD if sgd else torch.optim.Adam
        optimizer = kind(model.parameters(), lr=1e-3)
        for _ in range(steps):
            update(model, optimizer)
            optimizer.step()
            optimizer.zero_grad(set_to_none=folder.name.endswith("0"))
    return [one.message for one in watcher.symptoms if one.name == "summed-gradients"]


def summed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        loss_of(model).backward()


def summed_and_clipped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    summed(model, optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def smoothed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        loss_of(model, label_smoothing=0.1).backward()


def divided(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        (loss_of(model) / 4).backward()


def multiplied(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        (loss_of(model) * 0.25).backward()


def parts_divided(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        (loss_of(model) / 4 + loss_of(model) / 4).backward()


def gradients_divided(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    summed(model, optimizer)
    for one in model.parameters():
        assert one.grad is not None
        one.grad /= 4


def gradients_replaced(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    summed(model, optimizer)
    for one in model.parameters():
        assert one.grad is not None
        one.grad = one.grad / 4


def by_tokens(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        (loss_of(model, reduction="sum") / 32).backward()


def sums(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        loss_of(model, reduction="sum").backward()


def two_lines(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss_of(model).backward()
    (-loss_of(model)).backward()


def tasks(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scores = model(torch.randn(8, 6))
    for at in range(3):
        F.cross_entropy(scores, torch.full((8,), at)).backward(retain_graph=True)


def once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss_of(model).backward()


@pytest.mark.parametrize("update", [summed, summed_and_clipped, smoothed])
@pytest.mark.parametrize("number", [0, 1])
def test_a_sum(update: Update, number: int, tmp_path: Path) -> None:
    (message,) = said(update, tmp_path / str(number))
    assert message.startswith("the gradients of 4 backward passes of test_summed_backwards.py:")
    assert message.endswith("are summed, not averaged")


def test_a_sum_in_sgd(tmp_path: Path) -> None:
    (message,) = said(summed, tmp_path / "0", sgd=True)
    assert message.endswith("; the step of SGD is 4 times larger")


@pytest.mark.parametrize(
    "update",
    [
        divided,
        multiplied,
        parts_divided,
        gradients_divided,
        gradients_replaced,
        by_tokens,
        sums,
        two_lines,
        tasks,
        once,
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_others_are_left_alone(update: Update, number: int, tmp_path: Path) -> None:
    assert said(update, tmp_path / str(number)) == []
