"""A setting of the optimizer that jumped, after which the loss rose, is held; one that does no harm is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import steadytrain
from gate_loops import recorded, same
from parameters import long
from steadytrain.core.incident import Action
from steadytrain.guard.setting_jumps import SPAN_STEPS, SettingJumps, has_jumped, rose, settings_of

STEPS, JUMP = 260, 120


class Training:
    """A noisy regression whose script changes a setting at ``JUMP``."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer], changed: dict[str, Any]) -> None:
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = make(self.model.parameters())
        self.changed = changed
        self.teacher = torch.randn(8, 1)

    def run(self) -> None:
        torch.manual_seed(6)
        for step in range(1, STEPS + 1):
            if step == JUMP:
                self.optimizer.param_groups[0].update(self.changed)
            x = torch.randn(32, 8)
            y = x @ self.teacher + 0.3 * torch.randn(32, 1)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def watched(self, folder: Path) -> list[Action]:
        with steadytrain.watch(
            self.model, self.optimizer, name="run", runs_dir=folder, policy="steady", to="none", every_step=True
        ):
            self.run()
        return list(recorded(folder).actions)

    @torch.no_grad()
    def error(self) -> float:
        x = torch.randn(512, 8, generator=torch.Generator().manual_seed(9))
        return float(nn.functional.mse_loss(self.model(x), x @ self.teacher))


class Unfrozen(Training):
    """The same, but the first layer trains from ``JUMP`` on, in a group of its own with ``changed``."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer], changed: dict[str, Any]) -> None:
        super().__init__(make, changed)
        self.model[0].requires_grad_(False)
        self.optimizer = make([*self.model[2].parameters()])

    def run(self) -> None:
        torch.manual_seed(6)
        for step in range(1, STEPS + 1):
            if step == JUMP:
                self.model[0].requires_grad_(True)
                self.optimizer.add_param_group({"params": [*self.model[0].parameters()], **self.changed})
            x = torch.randn(32, 8)
            y = x @ self.teacher + 0.3 * torch.randn(32, 1)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


@pytest.mark.parametrize(
    ("make", "changed", "name"),
    [(sgd, {"momentum": 0.9999}, "momentum"), long(adam, {"weight_decay": 5.0}, "weight_decay")],
    ids=["momentum", "weight decay"],
)
def test_a_setting_that_spoils_the_run_is_held(
    make: Callable[[Any], torch.optim.Optimizer], changed: dict[str, Any], name: str, tmp_path: Path
) -> None:
    held, bare, twin = Training(make, changed), Training(make, changed), Training(make, {})
    actions = held.watched(tmp_path)
    bare.run()
    twin.run()
    done = [action for action in actions if action.intervention == "hold-settings"]
    before = {"momentum": 0.9, "weight_decay": 0.0}[name]
    assert [(action.what, dict(action.after)) for action in done[:1]] == [("applied", {name: before})]
    back = next(action for action in actions if action.what == "rolled-back")
    assert back.after["step"] < JUMP
    assert held.optimizer.param_groups[0][name] == changed[name]  # the script's own value stays
    assert held.error() < 1.5 * twin.error() < bare.error()


@pytest.mark.parametrize("changed", [{"momentum": 0.95}, {"weight_decay": 1e-5}], ids=["cycle", "decay that is small"])
def test_a_setting_that_does_no_harm_is_left_alone(changed: dict[str, Any], tmp_path: Path) -> None:
    held, bare = Training(sgd, changed), Training(sgd, changed)
    assert held.watched(tmp_path) == []
    bare.run()
    assert same(held.model.state_dict(), bare.model.state_dict())


@pytest.mark.parametrize("added", [{"momentum": 0.9999}, {"lr": 2.0}], ids=["momentum", "rate"])
def test_a_group_that_is_added_is_compared_with_the_others(added: dict[str, Any], tmp_path: Path) -> None:
    """An unfrozen layer gets a group of its own, with a setting that none of the others has."""
    held, bare, twin = Unfrozen(sgd, added), Unfrozen(sgd, added), Unfrozen(sgd, {})
    actions = held.watched(tmp_path)
    bare.run()
    twin.run()
    assert [action.what for action in actions][:1] == ["rolled-back"]
    assert held.error() < 1.5 * twin.error()
    assert not bare.error() < 1.5 * twin.error()


@pytest.mark.parametrize("added", [{}, {"lr": 0.1}, {"weight_decay": 1e-4}], ids=["alike", "faster", "decay"])
def test_a_group_that_is_added_by_plan_is_left_alone(added: dict[str, Any], tmp_path: Path) -> None:
    held, bare = Unfrozen(sgd, added), Unfrozen(sgd, added)
    assert held.watched(tmp_path) == []
    bare.run()
    assert same(held.model.state_dict(), bare.model.state_dict())


def test_what_a_jump_is() -> None:
    assert has_jumped("momentum", 0.9, 0.999)
    assert has_jumped("beta1", 0.9, 1.2)
    assert has_jumped("beta2", 0.9, 0.999)
    assert has_jumped("weight_decay", 0.0, 0.1)
    assert has_jumped("lr", 1e-3, 3e-2)
    assert not has_jumped("momentum", 0.85, 0.95)
    assert not has_jumped("beta2", 0.99, 0.998)
    assert not has_jumped("lr", 1e-3, 1e-2)
    assert not has_jumped("lr", 0.0, 1e-2)
    assert not has_jumped("weight_decay", 0.1, 0.01)
    assert settings_of({"lr": 0.1, "betas": (0.9, 0.99), "params": []}) == {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}


def test_a_rise_is_one_of_the_level() -> None:
    noise = np.random.default_rng(0).standard_normal(400)
    assert rose(noise[:64], noise[64:80] + 3)
    assert rose(noise[:64], noise[64:96] + 1)
    assert not rose(noise[:64], noise[64:96])
    assert not rose(noise[:20], noise[64:96] + 9)


def test_restarts_and_warm_ups_are_no_jumps() -> None:
    jumps = SettingJumps()
    group = {"lr": 0.0}
    restarts = [0.1 * 0.97 ** (step % 150) for step in range(450)]
    for step, rate in enumerate(restarts):
        group["lr"] = rate
        jumps.look(step, [group])
    assert jumps.near(400) == 400


def test_a_rate_that_creeps_up_is_a_jump_in_the_end() -> None:
    jumps = SettingJumps()
    group = {"lr": 0.0}
    for step in range(340):
        group["lr"] = 0.01 * 1.03 ** max(0, step - 250)
        jumps.look(step, [group])
    assert 250 <= jumps.near(330) <= 252 < 330 < 250 + SPAN_STEPS


def test_a_group_that_was_frozen_is_compared_with_the_others() -> None:
    for rate, jumped in ((0.01, False), (3.0, True)):
        jumps, frozen, other = SettingJumps(), {"lr": 0.0}, {"lr": 0.01}
        for step in range(60):
            frozen["lr"] = rate if step >= 50 else 0.0
            jumps.look(step, [frozen, other])
        assert (jumps.near(55) == 50) is jumped


def test_a_setting_on_an_accelerator_is_not_waited_for() -> None:
    jumps = SettingJumps()
    for step in range(60):
        jumps.look(step, [{"lr": torch.tensor(0.1, device="meta"), "momentum": 0.999 if step >= 50 else 0.9}])
    assert jumps.near(55) == 55


def test_momentum_that_carries_far_is_held_at_once_without_a_clip(tmp_path: Path) -> None:
    """It takes as many steps as it remembers to show in the loss, so nothing is waited for."""
    actions = Training(sgd, {"momentum": 0.999}).watched(tmp_path)
    first = [action for action in actions if action.step == JUMP]
    assert [action.intervention for action in first] == ["roll-back", "hold-settings"]


@pytest.mark.parametrize(("rate", "is_sure"), [(0.1, True), (0.001, False)])
def test_momentum_with_a_rate_that_is_as_much_lower_carries_no_further(rate: float, is_sure: bool) -> None:
    jumps, group = SettingJumps(), {"lr": 0.1, "momentum": 0.9}
    for step in range(60):
        if step == 50:
            group.update(lr=rate, momentum=0.999)
        jumps.look(step, [group])
    assert jumps._jump is not None
    assert jumps._jump.is_sure is is_sure
