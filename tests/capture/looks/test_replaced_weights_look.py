"""Weights that are loaded in the middle of a training, and loads that look like it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from steadytrain.capture.snapshots.replaced_weights import KEPT_MAX
from watching import watching

STEPS, AT = 24, (12, 18)
Act = Callable[[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]], torch.optim.Optimizer | None]


def train(act: Act) -> list[float]:
    """The losses of a training with an average of its weights; ``act`` is done after the steps of ``AT``."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    average = copy.deepcopy(model.state_dict())
    losses = []
    for step in range(1, STEPS + 1):
        x = torch.randn(16, 6)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for name, value in model.state_dict().items():
            average[name].lerp_(value, 0.1)
        if step in AT:
            optimizer = act(model, optimizer, average) or optimizer
    return losses


def left_in(model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]) -> None:
    model.load_state_dict(average)
    model(torch.randn(2, 6))


def taken_out(model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]) -> None:
    own = copy.deepcopy(model.state_dict())
    left_in(model, optimizer, average)
    model.load_state_dict(own)


def copied(model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]) -> None:
    other = copy.deepcopy(model)
    other.load_state_dict(average)
    other(torch.randn(2, 6))


def back_to_a_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    model.load_state_dict(average)
    optimizer.load_state_dict(state)


def begun_anew(
    model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]
) -> torch.optim.Optimizer:
    model.load_state_dict(average)
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def saved_and_loaded(model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]) -> None:
    model.load_state_dict({name: value.half() for name, value in model.state_dict().items()})


def told(folder: Path, act: Act) -> list[tuple[str, int, float]]:
    with watching(folder, "observe") as watcher:
        train(act)
    mine = [one for one in watcher.symptoms if one.name == "replaced-weights"]
    return [(one.severity, one.first_step, one.numbers["times"]) for one in mine]


def test_averages_that_are_left_in_are_told_once(tmp_path: Path) -> None:
    assert told(tmp_path / "run", left_in) == [("note", AT[0] + 1, 2.0)]


@pytest.mark.parametrize("act", [taken_out, copied, back_to_a_checkpoint, begun_anew, saved_and_loaded])
def test_other_loads_are_not(act: Act, tmp_path: Path) -> None:
    assert told(tmp_path / "run", act) == []


def test_models_without_an_update_are_kept_up_to_a_bound(tmp_path: Path) -> None:
    def many_copies(model: nn.Module, optimizer: torch.optim.Optimizer, average: dict[str, torch.Tensor]) -> None:
        copies = [copy.deepcopy(model) for _ in range(KEPT_MAX // 4 + 2)]
        for one in copies:
            one.load_state_dict(average)
        left_in(model, optimizer, average)

    assert told(tmp_path / "run", many_copies) == [("note", AT[0] + 1, 2.0)]


def test_the_training_is_the_same_under_watch(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe"):
        watched = train(left_in)
    assert watched == train(left_in)
