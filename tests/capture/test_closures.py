"""Optimizers that evaluate a closure several times in one step: each evaluation is followed as the first one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from watching import watching


@pytest.mark.parametrize("cleared", ["first", "last"])
def test_a_closure_that_differentiates_before_its_backward_is_followed(tmp_path: Path, cleared: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))
    at = torch.linspace(0.0, 1.0, 8).unsqueeze(1).requires_grad_()
    with watching(tmp_path, "observe") as watcher:
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def closure() -> Tensor:
            if cleared == "first":
                optimizer.zero_grad()
            else:
                for one in model.parameters():
                    one.grad = None
            out = model(at)
            slope = torch.autograd.grad(out.sum(), at, create_graph=True)[0]
            loss = (slope - out).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)  # a failure of ours would be raised
    assert not watcher.symptoms


def test_a_derivative_before_zero_grad_does_not_lose_the_call(tmp_path: Path) -> None:
    """Forces from energies: the gradients that ``zero_grad`` discards are those of the step before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watching(tmp_path, "observe") as watcher:
        for _ in range(4):
            at = torch.randn(16, 3, requires_grad=True)
            energy = model(at).sum()
            force = -torch.autograd.grad(energy, at, create_graph=True)[0]
            optimizer.zero_grad()
            (force.square().mean() + energy.square() / 256.0).backward()
            optimizer.step()
    (stream,) = watcher.streams
    samples = stream.history.window().series("samples")
    assert (samples.steps.tolist(), samples.values.tolist()) == ([2, 3, 4], [16.0] * 3)
