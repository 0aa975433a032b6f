"""Loads that shrink the weights, as an average does whose coefficients do not add up to one."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.snapshots.scaled_loads import ScaledLoads


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))


def trained_on(server: nn.Module, change: float) -> dict[str, Tensor]:
    return {name: one + change * torch.randn_like(one) * one.std() for name, one in server.state_dict().items()}


def rows_after(shares: Sequence[float], *, change: float = 0.02) -> dict[str, float]:
    server, loads = model(), ScaledLoads()
    for share in shares:
        replies = [trained_on(server, change) for _ in range(4)]
        merged = {name: share * sum(one[name] for one in replies) / 4 for name in replies[0]}
        loads.load_begins(server, merged)
        server.load_state_dict(merged)
    return dict(loads.rows())


def test_rounds_whose_coefficients_add_up_to_less_than_one_are_seen() -> None:
    rows = rows_after([1.0, 1.0, 0.8, 0.9, 0.7])
    (share,) = [value for name, value in rows.items() if name.startswith("scaled-load:")]
    (count,) = [value for name, value in rows.items() if name.startswith("scaled-loads:")]
    assert share == pytest.approx(0.8, abs=0.02)
    assert count == 3.0


@pytest.mark.parametrize(
    "shares",
    [[1.0] * 6, [0.7, 0.9], [0.8] * 6],
    ids=["they add up to one", "two loads only", "the same factor each time: shrunk on purpose"],
)
def test_other_loads_are_not(shares: list[float]) -> None:
    assert rows_after(shares) == {}


def test_weights_that_moved_otherwise_are_not() -> None:
    assert rows_after([0.8, 0.9, 0.7, 0.85], change=1.0) == {}


def test_a_state_of_another_model_is_not() -> None:
    server, loads = model(), ScaledLoads()
    for seed in range(5):
        torch.manual_seed(seed + 1)
        other = copy.deepcopy(server)
        for one in other.parameters():
            nn.init.normal_(one)
        loads.load_begins(server, other.state_dict())
    assert dict(loads.rows()) == {}
    loads.load_begins(server, None)
