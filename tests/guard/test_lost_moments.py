"""Second moments that a checkpoint lost are cleared, and the rate warmed up again, before the first update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import steadytrain
from gate_loops import recorded, same

BEFORE, AFTER = 60, 120
State = dict[str, Any]


def trained() -> tuple[nn.Module, State]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train(model, optimizer, BEFORE)
    return model, optimizer.state_dict()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    loss = torch.zeros(())
    for _ in range(steps):
        x = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def emptied(state: State) -> State:
    for held in state["state"].values():
        held["exp_avg_sq"] = torch.zeros_like(held["exp_avg_sq"])
    return state


def cleared(state: State) -> State:
    for held in state["state"].values():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            held[name] = torch.zeros_like(held[name])
    return state


def resumed(folder: Path, given: Callable[[State], State], policy: str) -> tuple[Any, State]:
    model, state = trained()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    watching = {"name": "run", "runs_dir": folder, "policy": policy, "to": "none", "every_step": True}
    with steadytrain.watch(model, optimizer, **watching):  # type: ignore[arg-type]
        optimizer.load_state_dict(given(state))
        train(model, optimizer, AFTER)
    return recorded(folder), {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def test_the_run_goes_on_as_with_new_moments_and_a_warm_up(tmp_path: Path) -> None:
    run, held = resumed(tmp_path, emptied, "steady")
    (action,) = run.actions
    assert (action.what, action.intervention, action.step) == ("applied", "reset-moments", 0)
    assert "100% of the second moments that Adam was given are 0" in action.reason
    assert [one.name for one in run.symptoms if one.severity == "warning"] == ["incomplete-resume"]

    model, state = trained()
    twin = torch.optim.Adam(model.parameters(), lr=3e-3)
    twin.load_state_dict(cleared(state))
    for step in range(1, AFTER + 1):
        twin.param_groups[0]["lr"] = 3e-3 * min(1.0, step / 50)
        train(model, twin, 1)
    twin.param_groups[0]["lr"] = 3e-3
    assert same(held, {"model": model.state_dict(), "optimizer": twin.state_dict()})


@pytest.mark.parametrize("policy", ["observe", "stop", "file"])
def test_a_policy_that_only_records_it_leaves_the_moments(policy: str, tmp_path: Path) -> None:
    file = tmp_path / "quiet.toml"
    file.write_text('policy = "steady"\n[symptoms]\nincomplete-resume = "capture"\n', encoding="utf-8")
    run, _ = resumed(tmp_path / "runs", emptied, str(file) if policy == "file" else policy)
    assert not [action for action in run.actions if action.intervention == "reset-moments"]
    assert "incomplete-resume" in [one.name for one in run.symptoms]


def test_a_whole_state_is_left_alone(tmp_path: Path) -> None:
    run, _ = resumed(tmp_path, lambda state: state, "steady")
    assert not run.actions
