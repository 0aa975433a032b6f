"""A script that asks for derivatives by its parameters, and updates with them, has a loss in each step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from watching import watching

Update = Callable[[nn.Module, Tensor], Tensor]


def by_derivatives(model: nn.Module, inputs: Tensor) -> Tensor:
    """The gradients of two parts of the batch, averaged by the script."""
    losses = [model(part).square().mean() for part in inputs.chunk(2)]
    parts = [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]
    for parameter, *gradients in zip(model.parameters(), *parts, strict=True):
        parameter.grad = torch.stack(gradients).mean(0)
    return torch.stack(losses).mean()


def weighed(model: nn.Module, inputs: Tensor) -> Tensor:
    """A term is weighed by its gradient at the last layer, and the sum is backpropagated."""
    first, second = model(inputs).square().mean(), model(inputs).abs().mean()
    size = torch.autograd.grad(second, model[-1].weight, retain_graph=True)[0].norm()
    loss = first + second / (size + 1.0).detach()
    loss.backward()
    return loss


def penalized(model: nn.Module, inputs: Tensor) -> Tensor:
    """A derivative by the inputs is part of the loss."""
    inputs = inputs.clone().requires_grad_()
    output = model(inputs)
    slope = torch.autograd.grad(output.sum(), inputs, create_graph=True)[0]
    loss = output.square().mean() + slope.square().mean()
    loss.backward()
    return loss


def looked_at(model: nn.Module, inputs: Tensor) -> Tensor:
    """The script computes the derivative of something else after the backward of its loss."""
    loss = model(inputs).square().mean()
    loss.backward()
    torch.autograd.grad(model(inputs).sum() + 100.0, list(model.parameters()))
    return loss


@pytest.mark.parametrize("update", [by_derivatives, weighed, penalized, looked_at])
def test_the_loss_of_a_step_is_what_the_update_is_made_of(update: Update, tmp_path: Path) -> None:
    def train() -> tuple[list[float], list[Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for _ in range(6):
            optimizer.zero_grad()
            losses.append(update(model, torch.randn(8, 4)).item())
            optimizer.step()
        return losses, [one.detach().clone() for one in model.parameters()]

    bare, weights = train()
    with watching(tmp_path / "run", "observe") as watcher:
        watched, now = train()
    assert watched == bare
    assert all(map(torch.equal, now, weights))
    assert watcher.streams[0].history.window().series("loss").values.tolist() == pytest.approx(bare, rel=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run_before_such_an_update(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    with watching(tmp_path / "run", "skip") as watcher:
        for scale in (float("inf"), 0.0):
            loss = (model(torch.ones(1, 2)) * scale).sum()
            model.weight.grad, model.bias.grad = torch.autograd.grad(loss, [model.weight, model.bias])
            optimizer.step()
    assert torch.equal(model.weight, before)
    assert "nonfinite-loss" in {symptom.name for symptom in watcher.symptoms}
