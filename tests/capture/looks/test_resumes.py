"""Trainings that go on from a checkpoint, with parts of it that are not loaded."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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
    states: States = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
    }
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


def of_weights_and_a_step(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    del states["optimizer"], states["schedule"]
    model.load_state_dict(states["model"])


def with_a_higher_rate(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    all_of_it(states, model, optimizer, schedule)
    optimizer.param_groups[0]["lr"] *= 5


def in_16_bits(value: Any, kind: torch.dtype) -> Any:
    if isinstance(value, dict):
        return {key: in_16_bits(one, kind) for key, one in value.items()}
    return value.to(kind).float() if isinstance(value, Tensor) and value.dim() else value


def small_gradients(states: States, share: float = 1e-4) -> States:
    """As if the loss had been in other units: moments of gradients that are smaller by ``share``."""
    for state in states["optimizer"]["state"].values():
        state["exp_avg"] *= share
        state["exp_avg_sq"] *= share * share
    return states


def kept_in_float16(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    states["optimizer"] = in_16_bits(small_gradients(states)["optimizer"], torch.float16)
    all_of_it(states, model, optimizer, schedule)


def kept_in_bfloat16(states: States, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    states["optimizer"] = in_16_bits(small_gradients(states)["optimizer"], torch.bfloat16)
    all_of_it(states, model, optimizer, schedule)


def at_full_rate() -> Begun:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)


@pytest.mark.parametrize(
    ("load", "severity"),
    [
        (without_schedule, "warning"),
        (without_optimizer, "warning"),
        (weights_alone, "note"),
        (of_weights_and_a_step, "note"),
        (with_a_higher_rate, "note"),
        (kept_in_float16, "warning"),
    ],
)
def test_a_part_that_was_left_is_told(load: Load, severity: Severity, tmp_path: Path) -> None:
    assert found(tmp_path / "run", load) == {"incomplete-resume": severity}


@pytest.mark.parametrize("load", [all_of_it, of_a_teacher, of_weights_without_more, kept_in_bfloat16])
def test_other_beginnings_are_not(load: Load, tmp_path: Path) -> None:
    assert found(tmp_path / "run", load) == {}


def test_a_schedule_of_micro_batches_is_no_resume(tmp_path: Path) -> None:
    """Stepped for each of four backwards, it stands at 3 before the first update."""
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        model, optimizer, schedule = begin()
        for micro in range(80):
            x = torch.randn(16, 6)
            (nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)) / 4).backward()
            if micro % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch's own, on a schedule that is ahead of its updates
                schedule.step()
    assert "incomplete-resume" not in {one.name for one in watcher.symptoms}


def test_another_schedule_is_a_second_phase(tmp_path: Path) -> None:
    assert found(tmp_path / "run", without_schedule, new=at_full_rate) == {"incomplete-resume": "note"}


class Reflections(nn.Module):
    """Three layers of one shape, of which one has inputs on many scales."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.middle, self.far = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.far(torch.tanh(self.middle(torch.tanh(self.near(inputs)))))
        return made


def resumed_in_order(folder: Path, order: Callable[[list[nn.Parameter]], list[nn.Parameter]]) -> dict[str, Severity]:
    def go_on(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(32, 24) * torch.logspace(-1, 1, 24)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x).backward()
            optimizer.step()

    torch.manual_seed(0)
    model = Reflections()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    go_on(model, optimizer, 40)
    with watching(folder, "observe") as watcher:
        again = Reflections()
        again.load_state_dict(model.state_dict())
        resumed = torch.optim.Adam(order(list(again.parameters())), lr=1e-3)
        resumed.load_state_dict(optimizer.state_dict())
        go_on(again, resumed, 16)
    return {one.name: one.severity for one in watcher.symptoms if one.name == "incomplete-resume"}


def test_moments_of_another_parameter_of_equal_shape(tmp_path: Path) -> None:
    swapped = resumed_in_order(tmp_path / "run", lambda held: [*held[4:], *held[2:4], *held[:2]])
    assert swapped == {"incomplete-resume": "warning"}


def test_moments_of_the_parameters_themselves(tmp_path: Path) -> None:
    assert resumed_in_order(tmp_path / "run", lambda held: held) == {}


@pytest.mark.parametrize(("kept_in", "told"), [(torch.float16, True), (torch.float32, False)])
def test_a_state_that_is_loaded_in_mid_run_is_looked_at(kept_in: torch.dtype, told: bool, tmp_path: Path) -> None:
    """Squares of small gradients are 0 in 16 bits."""
    torch.manual_seed(0)
    model, optimizer, schedule = begin()
    with watching(tmp_path / "run", "observe") as watcher:
        train(model, optimizer, schedule, 20)
        state = optimizer.state_dict()
        for moments in state["state"].values():
            moments["exp_avg_sq"] = (moments["exp_avg_sq"] * 1e-4).to(kept_in).float()
        optimizer.load_state_dict(state)
        train(model, optimizer, schedule, 4)
    assert ("incomplete-resume" in {one.name for one in watcher.symptoms}) is told


@pytest.mark.parametrize(
    ("rate", "severity"), [(0.3, "warning"), (1e-3, "note")], ids=["the loss rises", "it goes on as before"]
)
def test_a_resume_in_the_process_of_the_training_before(rate: float, severity: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watching(tmp_path, "observe") as watcher:
        model, optimizer, schedule = begin()
        train(model, optimizer, schedule, 300)
        kept = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 300}, kept)
        kept.seek(0)
        del model, optimizer, schedule
        states = torch.load(kept)
        model = network()
        model.load_state_dict(states["model"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        train(model, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0), 48)
    assert [one.severity for one in watcher.symptoms if one.name == "incomplete-resume"] == [severity]
