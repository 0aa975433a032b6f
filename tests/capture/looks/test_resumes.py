"""Trainings that go on from a checkpoint, with parts of it that are not loaded."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from steadytrain.core.model import Severity
from watching import watching

States = dict[str, Any]
Load = Callable[[States, nn.Module, torch.optim.Optimizer, Any], None]
Begun = tuple[nn.Module, torch.optim.Optimizer, Any]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def begin() -> Begun:
    """A warm-up of 30 steps, then the full rate."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1.0, (at + 1) / 30))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any, steps: int) -> None:
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
        schedule.step()


def found(folder: Path, load: Load, *, new: Callable[[], Begun] = begin) -> dict[str, Severity]:
    """What is reported of a training that goes on from forty steps; its parts are loaded by ``load``."""
    torch.manual_seed(0)
    model, optimizer, schedule = begin()
    train(model, optimizer, schedule, 40)
    kept = io.BytesIO()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save({**states, "step": 40}, kept)
    kept.seek(0)
    with watching(folder, "observe") as watcher:
        checkpoint = torch.load(kept)
        model, optimizer, schedule = new()
        load(checkpoint, model, optimizer, schedule)
        train(model, optimizer, schedule, 20)
    return {one.name: one.severity for one in watcher.symptoms if one.name == "incomplete-resume"}


def without_schedule(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])


def without_optimizer(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    model.load_state_dict(states["model"])
    schedule.load_state_dict(states["schedule"])


def weights_alone(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    model.load_state_dict(states["model"])


def all_of_it(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    without_schedule(states, model, optimizer, schedule)
    schedule.load_state_dict(states["schedule"])


def of_a_teacher(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    network().load_state_dict(states["model"])


def of_weights_without_more(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    weights = states.pop("model")
    states.clear()
    model.load_state_dict(weights)


def at_full_rate() -> Begun:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)


@pytest.mark.parametrize(
    ("load", "severity"), [(without_schedule, "warning"), (without_optimizer, "warning"), (weights_alone, "note")]
)
def test_a_part_that_was_left_is_told(load: Load, severity: Severity, tmp_path: Path) -> None:
    assert found(tmp_path / "run", load) == {"incomplete-resume": severity}


@pytest.mark.parametrize("load", [all_of_it, of_a_teacher, of_weights_without_more])
def test_other_beginnings_are_not(load: Load, tmp_path: Path) -> None:
    assert found(tmp_path / "run", load) == {}


def test_another_schedule_is_a_second_phase(tmp_path: Path) -> None:
    assert found(tmp_path / "run", without_schedule, new=at_full_rate) == {"incomplete-resume": "note"}
