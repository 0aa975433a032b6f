"""A small model, its faults and its loops for the tests of the gate."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadytrain
from steadytrain.storage.run_folder import Run, open_run

BAD_STEP = 4
NAN, INF = float("nan"), float("inf")


class Net(nn.Module):
    """Weights, buffers that move (BatchNorm), and random draws (dropout)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs)).squeeze(-1)


Losses = Callable[[Net, int], "list[Tensor]"]


def healthy(model: Net) -> Tensor:
    inputs = torch.randn(8, 6)
    return (model(inputs) - inputs.sum(-1)).pow(2).mean()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    "AdamW, fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "AdamW with amsgrad, one by one": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True, foreach=False),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-2, momentum=0.5),
}


def train(
    losses: Losses,
    *,
    make: Callable[[Any], torch.optim.Optimizer] = OPTIMIZERS["Adam"],
    steps: int = BAD_STEP + 2,
    before_step: Callable[[Net], object] = lambda model: None,
    watch: dict[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, Any], BaseException | None]:
    """Train; returns the state before the bad step, at the end, and what ended it."""
    torch.manual_seed(3)
    model = Net()
    optimizer = make(model.parameters())
    before: dict[str, Any] = {}
    ending: BaseException | None = None

    def loop() -> None:
        for step in range(1, steps + 1):
            if step == BAD_STEP:
                before.update(state(model, optimizer))
            optimizer.zero_grad()
            for loss in losses(model, step):
                loss.backward()
            before_step(model)
            optimizer.step()

    try:
        if watch is None:
            loop()
        else:
            with steadytrain.watch(model, optimizer, name="run", **watch):
                loop()
    except SystemExit as stop:
        ending = stop
    return before, state(model, optimizer), ending


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def same(one: Any, other: Any) -> bool:
    """Equal bit for bit: NaN equals NaN, -0 differs from 0."""
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.dtype == other.dtype
            and one.detach().contiguous().numpy().tobytes() == other.detach().contiguous().numpy().tobytes()
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def recorded(runs_dir: Path) -> Run:
    return open_run(runs_dir / "run")
