"""Schedules of an optimizer that makes no step any more, and schedules of those that do."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from looked_loops import Step, adam, batch, found, small, update  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim.lr_scheduler import StepLR  # noqa: E402

STEPS = 113


def training(kind: str) -> Step:
    model = small()
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "of other parameters":
        first = torch.optim.SGD(nn.Linear(8, 3).parameters(), lr=0.1)
    scheduler = StepLR(first, step_size=1, gamma=0.9)
    second = adam(model)
    own = StepLR(second, step_size=1000) if kind == "beside its own" else None

    def step(at: int) -> None:
        x, y = batch()
        takes_turns = (kind == "in turns" and at % 2 == 0) or (kind == "of one that trained before" and at <= 16)
        update(first if takes_turns else second, functional.cross_entropy(model(x), y))
        if kind == "of a phase" and at > 32:
            return
        if kind == "rates by hand":
            second.param_groups[0]["lr"] *= 0.99
        if at % 8 == 0:
            scheduler.step()
        if own is not None:
            own.step()

    return step


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("of the optimizer before", True),
        ("of one that trained before", True),
        ("of other parameters", False),
        ("beside its own", False),
        ("in turns", False),
        ("of a phase", False),
        ("rates by hand", False),
    ],
)
def test_a_schedule_of_another_optimizer(kind: str, told: bool, tmp_path: Path) -> None:
    said = found(tmp_path / "run", lambda: training(kind), steps=STEPS)
    assert said.get("idle-schedule") == ("warning" if told else None)
