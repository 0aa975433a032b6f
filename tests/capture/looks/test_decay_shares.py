"""How strongly weight decay acts beside the weights and the gradient."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from steadytrain.capture.looks.decay_shares import EVERY_STEPS, STEPS_MAX, DecayShares

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def rows_of(make: Make, *, step: int = 0, gradient: float | None = 0.1) -> dict[str, float]:
    weights = [nn.Parameter(torch.full((4, 4), 2.0)), nn.Parameter(torch.full((2, 2), 2.0))]
    optimizer = make(weights)
    for one in weights if gradient is not None else ():
        one.grad = torch.full_like(one, gradient)
    stream: Any = SimpleNamespace(own_steps=step, optimizers=(optimizer,))
    return dict(DecayShares().rows(stream))


@pytest.mark.parametrize(
    ("make", "row", "value"),
    [
        (lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=8.0), "decay-rate:AdamW", 0.08),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05), "decay-rate:SGD", 0.05),
        (lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1), "decay-pull:Adam", 2.0),
        (lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.1), "decay-pull:RMSprop", 2.0),
        (
            lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=8.0, decoupled_weight_decay=True),
            "decay-rate:Adam",
            0.08,
        ),
        (
            lambda p: torch.optim.AdamW([{"params": p[:1], "weight_decay": 8.0}, {"params": p[1:]}], lr=0.01),
            "decay-rate:AdamW",
            0.08,
        ),
    ],
    ids=["AdamW", "SGD", "Adam", "RMSprop", "decoupled", "groups"],
)
def test_a_strong_decay(make: Make, row: str, value: float) -> None:
    assert rows_of(make) == pytest.approx({row: value})


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
        lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=1e-4),
        lambda p: torch.optim.Adam(p, lr=1e-3),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=8.0, maximize=True),
    ],
)
def test_nothing_is_written_of_a_usual_one(make: Make) -> None:
    assert rows_of(make) == {}


def test_steps_and_gradients_without_which_it_is_not_read() -> None:
    def strong(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, weight_decay=0.1)

    assert rows_of(strong, step=EVERY_STEPS) != {}
    for step in (1, EVERY_STEPS + 1, STEPS_MAX + EVERY_STEPS):
        assert rows_of(strong, step=step) == {}
    assert rows_of(strong, gradient=None) == {} == rows_of(strong, gradient=0.0)


def test_norms_that_half_precision_cannot_hold() -> None:
    weight = nn.Parameter(torch.full((256, 256), 300.0, dtype=torch.float16))
    weight.grad = torch.full_like(weight, 300.0)
    stream: Any = SimpleNamespace(own_steps=0, optimizers=(torch.optim.Adam([weight], weight_decay=2.0),))
    assert dict(DecayShares().rows(stream)) == pytest.approx({"decay-pull:Adam": 2.0})
