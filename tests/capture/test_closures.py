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
