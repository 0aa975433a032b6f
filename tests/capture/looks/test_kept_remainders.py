"""The look finds optimizers that keep what bfloat16 rounded away, and not those that keep moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.kept_remainders import AT_STEPS, remainder_rows
from steadytrain.capture.step.optimizer_streams import Stream

Step = Callable[[torch.optim.Optimizer, Tensor, Tensor], None]


class Plain(torch.optim.Optimizer):
    """Gradient descent whose step is ``made`` with a state in bfloat16."""

    def __init__(self, parameters: list[Tensor], made: Step) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.made = made

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for one in self.param_groups[0]["params"]:
            self.made(self, one, torch.sign(one.grad) * 1e-4)


def kahan(optimizer: torch.optim.Optimizer, weight: Tensor, update: Tensor) -> None:
    state = optimizer.state[weight]
    rest = state.setdefault("rest", torch.zeros_like(weight))
    whole = rest - update
    before = weight.clone()
    weight.add_(whole)
    rest.copy_(whole - (weight - before))


def halves(optimizer: torch.optim.Optimizer, weight: Tensor, update: Tensor) -> None:
    optimizer.state[weight].setdefault("low", torch.zeros(weight.shape, dtype=torch.int16))


def momentum(scale: float) -> Step:
    def made(optimizer: torch.optim.Optimizer, weight: Tensor, update: Tensor) -> None:
        held = optimizer.state[weight].setdefault("mean", torch.zeros_like(weight))
        held.lerp_(weight.grad * scale, 0.1)  # type: ignore[operator]
        weight.sub_(update)

    return made


def rows(made: Step | None, dtype: torch.dtype = torch.bfloat16) -> dict[str, float]:
    torch.manual_seed(0)
    model = nn.Linear(64, 64).to(dtype)
    parameters = list(model.parameters())
    adam = torch.optim.Adam(parameters, lr=1e-4)
    optimizer = adam if made is None else Plain(parameters, made)
    for _ in range(AT_STEPS[0]):
        optimizer.zero_grad()
        model(torch.randn(16, 64, dtype=dtype)).float().square().mean().backward()
        optimizer.step()
    stream = Stream("main", cast(Any, None), parameters=list(parameters))
    stream.join(optimizer)
    return dict(remainder_rows(stream))


@pytest.mark.parametrize("made", [kahan, halves])
def test_what_is_kept_is_found(made: Step) -> None:
    assert rows(made) == {"remainders-kept:Plain": 1.0}


@pytest.mark.parametrize("made", [None, *(momentum(10.0**power) for power in (-8, -4, -2, -1, 0, 2))])
def test_moments_of_any_size_are_none(made: Step | None) -> None:
    assert rows(made) == {}


def test_weights_in_float32_are_not_read() -> None:
    assert rows(kahan, torch.float32) == {}
