"""Loops that update their weights without a torch.optim optimizer, and say so; one that compiles the update."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from parameters import long
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import open_run
from steadytrain.testing import Probe, assert_contract, by_itself, zero_code

STEPS, RATE = 5, 0.0625  # exact in float32


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))


def after_backward(probe: Probe) -> Any:
    """Plain gradient descent over ``parameter.grad``."""
    model, losses = net(), []
    with probe.watch(model) as watch:
        for step in range(1, STEPS + 1):
            loss = model(probe.planted(step, torch.randn(6, 8))).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
            with watch.update(learning_rate=RATE), torch.no_grad():
                for parameter in model.parameters():
                    parameter -= RATE * parameter.grad
            model.zero_grad()
            probe.note(model)
    return losses


def without_backward(probe: Probe) -> Any:
    """Gradients by ``torch.autograd.grad``, with momentum."""
    model, losses = net(), []
    momenta = [torch.zeros_like(parameter) for parameter in model.parameters()]
    with probe.watch(model) as watch:
        for step in range(1, STEPS + 1):
            loss = model(probe.planted(step, torch.randn(6, 8))).pow(2).mean()
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            losses.append(loss.detach())
            with watch.update(loss=loss, gradients=gradients, learning_rate=RATE), torch.no_grad():
                for parameter, momentum, gradient in zip(model.parameters(), momenta, gradients, strict=True):
                    parameter -= RATE * momentum.mul_(0.9).add_(gradient)
            assert all(parameter.grad is None for parameter in model.parameters())
            probe.note(model, momenta)
    return losses


def without_gradients(probe: Probe) -> Any:
    """A step of an evolution strategy: there is a loss and nothing else."""
    model, losses = net(), []
    with probe.watch(model) as watch:
        for step in range(1, STEPS + 1):
            with torch.no_grad():
                batch = probe.planted(step, torch.randn(6, 8))
                before = model(batch).pow(2).mean()
                moves = [RATE * torch.randn_like(parameter) for parameter in model.parameters()]
                with watch.update(loss=before):
                    for parameter, move in zip(model.parameters(), moves, strict=True):
                        parameter += move
                losses.append(before)
                probe.note(model)
    return losses


@dataclass(frozen=True)
class CompiledUpdate:
    """The optimizer's step is compiled, so none of its hooks runs: the update says itself that it comes."""

    def __call__(self, probe: Probe) -> Any:
        model, losses = net(), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(RATE))
        update = torch.compile(optimizer.step, backend="aot_eager")
        with probe.watch(model) as watch:
            for step in range(1, STEPS + 1):
                loss = model(probe.planted(step, torch.randn(6, 8))).pow(2).mean()
                loss.backward()
                losses.append(loss.detach())
                with watch.update():
                    update()
                model.zero_grad()
                probe.note(model)
        return losses


@pytest.mark.parametrize(
    ("train", "attach"),
    [
        *((after_backward, by_itself), (without_backward, zero_code), (without_gradients, by_itself)),
        *(long(after_backward, zero_code), long(without_backward, by_itself), long(without_gradients, zero_code)),
    ],
)
def test_an_update_by_hand(train: Any, attach: Any) -> None:
    recorded = assert_contract(train, step=3, attach=attach)
    (window,) = recorded.streams.values()
    assert window.steps.tolist() == list(range(1, STEPS + 1))
    assert window.present["loss"].all()
    assert bool(window.present["gradient_norm"].all()) == (train is not without_gradients)
    if train is not without_gradients:
        assert set(window.signals["learning_rate"]) == {RATE}
    assert recorded.facts["notes"] == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_update() -> None:
    recorded = assert_contract(CompiledUpdate(), step=3, attach=by_itself)
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))


def test_every_statistic_of_an_update_by_hand(tmp_path: Path) -> None:
    model = net()
    with steadytrain.watch(model, runs_dir=tmp_path, name="run", level="full") as watch:
        for _ in range(3):
            model(torch.randn(6, 8)).pow(2).mean().backward()
            with watch.update(learning_rate=RATE), torch.no_grad():
                for parameter in model.parameters():
                    parameter -= RATE * parameter.grad
            model.zero_grad()
    table = open_run(tmp_path / "run").table("tensors")
    assert table.rows == tuple(name for name, _ in model.named_parameters())
    assert (table.series("0.weight", "update_norm").values > 0).all()


def test_an_update_that_fails_is_not_recorded(tmp_path: Path) -> None:
    model = net()
    with steadytrain.watch(model, runs_dir=tmp_path, name="run") as watch:
        for step in range(1, 4):
            model(torch.randn(6, 8)).pow(2).mean().backward()
            try:
                with watch.update():
                    if step == 2:
                        raise KeyError("the loop's own")
            except KeyError:
                pass
            model.zero_grad()
    assert open_run(tmp_path / "run").scalars().steps.tolist() == [1, 2]


def test_bad_input_of_an_update_is_named(tmp_path: Path) -> None:
    model = net()
    with steadytrain.watch(runs_dir=tmp_path) as watch, pytest.raises(UsageError, match="this watch has no model"):
        watch.update()
    with steadytrain.watch(model, runs_dir=tmp_path) as watch:
        for gradients, told in (
            ([torch.zeros(8, 8)], "1 gradients for 4 parameters; give one for each"),
            ({"first.weight": torch.zeros(8, 8)}, "'first.weight': no such parameter"),
            ({"0.weight": torch.zeros(8)}, r"the gradient of 0.weight has shape \(8,\), the parameter \(8, 8\)"),
        ):
            with pytest.raises(UsageError, match=told), watch.update(gradients=gradients):
                raise AssertionError("the update must not begin")
