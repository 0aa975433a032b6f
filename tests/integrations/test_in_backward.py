"""An optimizer for each parameter, in a hook that runs inside of the backward (as torchtune has it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.storage.run_folder import open_run

STEPS, BAD = 5, 3


class BadGradient(torch.autograd.Function):
    """Its forward is the identity; its backward gives a NaN in the call ``BAD``."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        BadGradient.calls += 1
        ctx.bad = BadGradient.calls == BAD
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * (torch.nan if ctx.bad else 1.0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 1)
        self.spoilt = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh()
        return self.second(BadGradient.apply(hidden) if self.spoilt else hidden)


def net(*, spoilt: bool = False) -> Net:
    torch.manual_seed(0)
    BadGradient.calls = 0
    model = Net()
    model.spoilt = spoilt
    optimizers = {one: torch.optim.AdamW([one], lr=0.01) for one in model.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)
    return model


def train(model: nn.Module, *, bad: int = 0) -> list[Tensor]:
    torch.manual_seed(1)
    for step in range(1, STEPS + 1):
        batch = torch.randn(6, 8)
        if step == bad:
            batch[2, 1] = float("nan")
        model(batch).pow(2).mean().backward()
    return values(model)


def values(model: nn.Module) -> list[Tensor]:
    return [one.detach().clone() for one in model.parameters()]


def test_it_is_recorded_and_unchanged(tmp_path: Path) -> None:
    expected, model = train(net()), net()
    with steadytrain.watch(runs_dir=tmp_path, name="run"):
        found = train(model)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    run = open_run(tmp_path / "run")
    assert run.streams() == ["main"]
    assert len(run.scalars().signals["loss"]) == STEPS
    (note,) = run.facts["notes"]
    assert "that of the first one alone" in note


def test_a_bad_loss_is_stopped_before_any_update(tmp_path: Path) -> None:
    model = net()
    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        train(model, bad=BAD)
    assert all(one.isfinite().all() for one in model.parameters())


def test_a_gradient_that_goes_bad_below_the_last_layer_is_refused(tmp_path: Path) -> None:
    model = net(spoilt=True)
    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        train(model)
    assert all(one.isfinite().all() for one in model.parameters())


def test_the_search_for_the_operation_makes_no_update(tmp_path: Path) -> None:
    """It runs the backward again, and the hooks with it."""
    model, before = net(spoilt=True), []

    def keep(gradient: Tensor) -> None:
        before[:] = values(model)

    model.first.weight.register_hook(keep)
    with pytest.raises(RunStopped), steadytrain.watch(runs_dir=tmp_path, name="run"):
        train(model)
    first = [name for name, _ in model.named_parameters()].index("first.weight")
    assert torch.equal(values(model)[first], before[first])
