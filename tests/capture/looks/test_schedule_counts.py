"""Schedules that are stepped in another unit than they count, in real loops, and loops that look like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from parameters import long
from steadytrain.core.model import Severity
from watching import watching

Schedule = Callable[[torch.optim.Optimizer], Any]
NAMES = {"mistimed-schedule", "spent-schedule", "zero-learning-rate", "idle-schedule"}
PASS = 32
"""Updates in a pass over the data."""


def found(
    folder: Path,
    schedule: Schedule,
    *,
    passes: int = 3,
    each_batch: int = 0,
    each_pass: int = 0,
    loader: bool = True,
    trainings: int = 1,
    anew: bool = False,
) -> dict[str, Severity]:
    """What is reported of trainings whose ``schedule`` steps so often; ``anew``: on data made anew for each pass."""
    torch.manual_seed(0)
    rows = torch.randn(PASS * 4, 6), torch.randint(3, (PASS * 4,))
    data = TensorDataset(*rows)
    with watching(folder, "observe") as watcher:
        for _ in range(trainings):
            model = nn.Linear(6, 3)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            planned = schedule(optimizer)
            for _ in range(passes):
                batches = DataLoader(TensorDataset(*rows) if anew else data, 4, shuffle=True)
                for x, y in batches if loader else [data[at : at + 4] for at in range(0, 128, 4)]:
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
                    for _ in range(each_batch):
                        planned.step()
                for _ in range(each_pass):
                    planned.step()
    return {one.name: one.severity for one in watcher.symptoms if one.name in NAMES}


def rate_as_factor(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.LambdaLR(optimizer, lambda at: 1e-2 * min(1.0, (at + 1) / 10) * 0.99**at)


def warm_up_to_a_tenth(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.LambdaLR(optimizer, lambda at: min(0.1, (at + 1) / 1000))


def warm_up(updates: int) -> Schedule:
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda at: min(1.0, (at + 1) / updates))


def cosine(steps: int) -> Schedule:
    return lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, steps)


def linear(steps: int) -> Schedule:
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda at: max(0.0, 1.0 - at / steps))


def exponential(gamma: float) -> Schedule:
    return lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma)


def stairs(every: int) -> Schedule:
    return lambda optimizer: lr_scheduler.StepLR(optimizer, every, 0.1)


def milestones(*at: int) -> Schedule:
    return lambda optimizer: lr_scheduler.MultiStepLR(optimizer, list(at), 0.1)


def warm_up_then_cosine(optimizer: torch.optim.Optimizer) -> Any:
    parts = [lr_scheduler.LinearLR(optimizer, 0.01, total_iters=4), lr_scheduler.CosineAnnealingLR(optimizer, 12)]
    return lr_scheduler.SequentialLR(optimizer, parts, [4])


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=32 * PASS)


def restarts(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 10)


SICK = [  # what each says is told of some schedule in the ordinary suite
    (cosine(12), {"each_batch": 1, "passes": 2}, {"mistimed-schedule": "warning"}),
    long(warm_up_then_cosine, {"each_batch": 1, "passes": 2}, {"mistimed-schedule": "warning"}),
    (cosine(40), {"each_batch": 1}, {"mistimed-schedule": "note"}),
    (cosine(12), {"each_batch": 1, "loader": False}, {"mistimed-schedule": "note"}),
    (warm_up(500), {"each_pass": 1}, {"mistimed-schedule": "warning"}),
    long(warm_up(500), {"each_pass": 1, "passes": 8, "loader": False}, {"mistimed-schedule": "warning"}),
    long(one_cycle, {"each_pass": 1}, {"mistimed-schedule": "warning"}),
    (cosine(2 * PASS * 4), {"each_batch": 4, "passes": 2}, {"mistimed-schedule": "note"}),
    (exponential(0.8), {"each_batch": 1}, {"spent-schedule": "warning"}),
    (exponential(0.95), {"each_batch": 1, "passes": 5}, {"spent-schedule": "warning"}),
    long(stairs(5), {"each_batch": 1}, {"spent-schedule": "warning"}),
    (linear(20), {"each_batch": 1, "passes": 2}, {"zero-learning-rate": "warning"}),
    (milestones(16, 22), {"each_batch": 1, "passes": 4}, {"mistimed-schedule": "warning"}),
    long(milestones(16, 22), {"each_batch": 1, "passes": 16, "loader": False}, {"mistimed-schedule": "warning"}),
    (rate_as_factor, {"each_batch": 1}, {"mistimed-schedule": "warning"}),
]
HEALTHY = [
    (cosine(3 * PASS), {"each_batch": 1}),
    (cosine(3), {"each_pass": 1}),
    long(cosine(3 * PASS - 8), {"each_batch": 1}),
    (restarts, {"each_batch": 1}),
    (warm_up(5), {"each_pass": 1}),
    long(warm_up(30), {"each_pass": 1}),
    long(warm_up(40), {"each_batch": 1}),
    long(warm_up(2000), {"each_batch": 1}),
    (exponential(0.9), {"each_pass": 1}),
    (exponential(0.97), {"each_batch": 1, "passes": 5}),
    (milestones(2, 3), {"each_pass": 1, "passes": 4}),
    (milestones(16, 3 * PASS), {"each_batch": 1, "passes": 4}),
    long(milestones(60, 100), {"each_batch": 1, "passes": 12, "loader": False}),
    (milestones(16, 22), {"each_batch": 1, "passes": 2}),  # one may be meant, as for a short fine-tune
    long(stairs(1), {"each_pass": 1}),
    (linear(3 * PASS), {"each_batch": 1}),
    (stairs(1), {"each_pass": 1, "trainings": 2}),
    long(cosine(8 * PASS), {"each_batch": 1, "trainings": 3}),
    (warm_up_to_a_tenth, {"each_batch": 1, "passes": 4}),
]


@pytest.mark.parametrize(("schedule", "how", "expected"), SICK)
def test_a_wrong_unit_is_told(
    schedule: Schedule, how: dict[str, Any], expected: dict[str, Severity], tmp_path: Path
) -> None:
    assert found(tmp_path / "run", schedule, **how) == expected


@pytest.mark.parametrize(("schedule", "how"), HEALTHY)
def test_a_right_one_is_not(schedule: Schedule, how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path / "run", schedule, **how) == {}


def test_data_made_anew_for_each_pass_are_no_first_pass(tmp_path: Path) -> None:
    told = found(tmp_path / "run", cosine(2), each_pass=1, passes=4, anew=True)
    assert told["mistimed-schedule"] == "note"
