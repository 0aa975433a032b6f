"""Batch norms with statistics of an earlier training: what they get, and whether those of a frozen part move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from watching import watching

STEPS = 40


def trained_before(*, momentum: float = 0.1) -> nn.Sequential:
    """A part whose batch norm has seen normal inputs."""
    part = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16, momentum=momentum), nn.ReLU())
    with torch.no_grad():
        for _ in range(80):
            part(torch.randn(32, 6))
    return part


def new() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU())


Prepare = Callable[[nn.Sequential], object]


def frozen(part: nn.Sequential) -> None:
    part.requires_grad_(False)


def found(
    folder: Path,
    inputs: Callable[[Tensor], Tensor],
    *,
    made: Callable[[], nn.Sequential] = trained_before,
    prepare: Prepare = lambda part: None,
    calls: int = 1,
) -> set[str]:
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        part = made()
        prepare(part)
        model = nn.Sequential(part, nn.Linear(16, 1))
        optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=1e-3)
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(calls):
                model(inputs(torch.randn(32, 6))).square().mean().backward()
            optimizer.step()
    return {one.name for one in watcher.symptoms}


def shifted(x: Tensor) -> Tensor:
    return 2.0 * x + 3.0


def small(x: Tensor) -> Tensor:
    return 0.2 * x


def plain(x: Tensor) -> Tensor:
    return x


def stays_in_evaluation(part: nn.Sequential) -> None:
    part.requires_grad_(False).eval()


def layer_trains(part: nn.Sequential) -> None:
    part[1].requires_grad_(False)


def test_a_frozen_part_whose_statistics_move(tmp_path: Path) -> None:
    assert "moving-frozen-norms" in found(tmp_path, shifted, prepare=frozen)


@pytest.mark.parametrize(
    ("inputs", "made", "prepare"),
    [
        (plain, trained_before, frozen),
        (shifted, new, frozen),
        (shifted, trained_before, stays_in_evaluation),
        (shifted, trained_before, layer_trains),
        (shifted, trained_before, lambda part: None),
    ],
    ids=["the same data", "a new part", "evaluation mode", "the layer trains", "all trains"],
)
def test_statistics_that_may_move(
    tmp_path: Path, inputs: Callable[[Tensor], Tensor], made: Callable[[], nn.Sequential], prepare: Prepare
) -> None:
    assert "moving-frozen-norms" not in found(tmp_path, inputs, made=made, prepare=prepare)


@pytest.mark.parametrize("prepare", [lambda part: None, frozen], ids=["trained", "frozen"])
def test_inputs_that_are_not_expected(tmp_path: Path, prepare: Prepare) -> None:
    assert "unexpected-inputs" in found(tmp_path, small, prepare=prepare)


@pytest.mark.parametrize(
    ("inputs", "made", "calls"),
    [(plain, trained_before, 1), (lambda x: 0.7 * x + 0.3, trained_before, 1), (small, new, 1), (small, new, 2)],
    ids=["the same", "somewhat darker", "a new model", "two calls a step"],
)
def test_inputs_that_may_be(
    tmp_path: Path, inputs: Callable[[Tensor], Tensor], made: Callable[[], nn.Sequential], calls: int
) -> None:
    assert "unexpected-inputs" not in found(tmp_path, inputs, made=made, calls=calls)
