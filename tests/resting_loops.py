"""Loops of very short steps under a watch that rests, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.settings import Settings
from steadytrain.capture.step.pacing import Pace
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.incident import Policy
from steadytrain.detection.run_recorder import recording
from steadytrain.grouping.catalog import detectors
from steadytrain.tracing.investigator import StepInvestigator

FIRST_REST = 96
"""The first resting step under :func:`pace`."""

Bad = Callable[[int, Tensor], Tensor]


class Ticks:
    """A clock that goes on by a millisecond whenever it is read, or by ``tick_s``."""

    def __init__(self, tick_s: float = 1e-3) -> None:
        self.seconds = 0.0
        self._tick_s = tick_s

    def __call__(self) -> float:
        self.seconds += self._tick_s
        return self.seconds


def pace(**how: Any) -> Pace:
    """A pace without an allowance: a run rests after its first 95 steps, first for 33 and then for 250 at a time."""
    return Pace(**{"allowance_s": 0.0, "first_steps": 80, "rest_s_max": 0.25, "clock": Ticks(), **how})


@contextmanager
def resting(
    folder: Path, told: list[str] | None = None, *, policy: Policy = "stop", pace: Pace | None = None, keep: bool = True
) -> Iterator[Watcher]:
    """Watch what trains inside the block, as ``steadytrain.watch`` does it."""
    watcher = Watcher(
        Settings(run_dir=folder, run_name=folder.name, policy=policy, keep_rewind=keep, pace=pace),
        tell=(told if told is not None else []).append,
        record=recording(detectors()),
        investigator=StepInvestigator(),
    )
    ended = "failed"
    try:
        yield watcher
        ended = "finished"
    except BaseException as error:
        watcher.script_failed(error)
        raise
    finally:
        watcher.close(ended=ended)


def network(width: int = 32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))


def as_it_is(step: int, loss: Tensor) -> Tensor:
    return loss


def train(steps: int, *, model: nn.Module | None = None, bad: Bad = as_it_is, losses: list[float] | None = None) -> Any:
    """Train a small network for ``steps`` steps; ``bad`` makes the loss of a step what it is. Returns the model."""
    torch.set_num_threads(1)
    model = model or network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(1024, 16)
    targets = inputs[:, :1].tanh()
    for step in range(1, steps + 1):
        rows = torch.randint(0, len(inputs), (32,))
        loss = bad(step, nn.functional.mse_loss(model(inputs[rows]), targets[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if losses is not None:
            losses.append(loss.item())
    return model
