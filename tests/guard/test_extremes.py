"""Updates far beyond all of the last steps are skipped; a row of them shows whether the state or the data is wild."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import steadytrain
from gate_loops import recorded, same
from parameters import long
from steadytrain.core.incident import Action
from steadytrain.guard.extremes import HELD_BACK_STEPS, HINDSIGHT_STEPS, STEPS_MIN, extreme_at_first, is_extreme
from steadytrain.guard.troubles import SETTLE_STEPS

STEPS = 150


def test_extreme_is_far_beyond_every_one_of_the_last_steps() -> None:
    random = np.random.default_rng(0)
    norms, losses = np.exp(0.3 * random.standard_normal(200)), 2 + 0.2 * random.standard_normal(200)
    assert is_extreme(norms, 1e4, losses, 50.0)
    assert not is_extreme(norms, 30.0, losses, 50.0)
    assert not is_extreme(norms, 1e4, losses, 2.5)
    assert not is_extreme(norms[: STEPS_MIN - 1], 1e9, losses[: STEPS_MIN - 1], 1e9)
    assert is_extreme(norms, 40.0, losses, 2e5)  # normalised layers bound the gradient
    assert not is_extreme(norms, 40.0, losses, 2e3)
    assert is_extreme(norms[:12], 1e4, losses[:12], 1e4)
    assert not is_extreme(norms[:12], 1e3, losses[:12], 1e4)


def test_heavy_tails_are_not_extreme() -> None:
    random = np.random.default_rng(1)
    norms = np.abs(random.standard_t(1.5, 20_000)) + 0.1
    losses = norms**2
    extreme = [at for at in range(200, 20_000) if is_extreme(norms[:at], norms[at], losses[:at], losses[at])]
    assert len(extreme) <= 2


class Training:
    """A regression with batch norm whose targets are ``factor`` times as large in the steps ``wild``."""

    def __init__(self, wild: Collection[int], factor: float = 1e6, damaged: int = -1) -> None:
        torch.manual_seed(5)
        self.wild, self.factor, self.damaged = wild, factor, damaged
        self.model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def run(self, left_out: Collection[int] = ()) -> None:
        for step in range(1, STEPS + 1):
            x = torch.randn(16, 8)
            y = x[:, :1] * x[:, 1:2] + x.sum(1, keepdim=True)
            if step in self.wild:
                y = y * self.factor
            if step in left_out:
                continue
            if step == self.damaged:
                with torch.no_grad():
                    self.model[3].weight.mul_(1e4)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def watched(self, folder: Path, policy: str = "steady") -> list[Action]:
        with steadytrain.watch(
            self.model, self.optimizer, name="run", runs_dir=folder, policy=policy, to="none", every_step=True
        ):
            self.run()
        return recorded(folder).actions

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


@pytest.mark.parametrize("wild", [long((90,)), (90, 91, 92)], ids=["one batch", "three batches"])
def test_the_run_ends_as_one_that_never_saw_the_batches(wild: tuple[int, ...], tmp_path: Path) -> None:
    held = Training(wild)
    actions = held.watched(tmp_path)
    twin = Training(())
    twin.run(left_out=wild)
    assert [(action.what, action.step) for action in actions] == [("skipped-update", step) for step in wild]
    assert "times the largest" in actions[0].reason
    run = recorded(tmp_path)
    assert [symptom.first_step for symptom in run.symptoms] == [90]
    assert len(run.incidents) == 1
    assert same(held.state(), twin.state())


def test_wild_data_are_held_back_while_they_last(tmp_path: Path) -> None:
    wild = range(90, 110)
    held = Training(wild)
    actions = held.watched(tmp_path)
    twin = Training(())
    twin.run(left_out=wild)
    assert {"rolled-back", "skipped-update"} <= {action.what for action in actions}
    assert "the data are extreme" in actions[-1].reason or actions[-1].what == "skipped-update"
    assert same(held.state(), twin.state())


def test_wild_data_that_go_on_are_learned(tmp_path: Path) -> None:
    """After a while they are the data: bounded updates at first, no further roll-back, and no stop."""
    held = Training(range(90, STEPS + 1), factor=300.0)
    actions = held.watched(tmp_path)
    left_out = [action.step for action in actions if action.what == "skipped-update"]
    first = 90 + len(left_out) + SETTLE_STEPS
    assert len(left_out) == 6 + HELD_BACK_STEPS
    learned = next(action for action in actions if "the run learns from them" in action.reason)
    assert (learned.what, learned.intervention, learned.step) == ("applied", "clip", first - 1)
    assert [action.what for action in actions if action.step >= first and action.what != "ended"] == []
    other = Training(range(90, STEPS + 1), factor=300.0)
    other.run(left_out=range(90, STEPS + 1))
    assert error(held) < error(other)


@torch.no_grad()
def error(training: Training, factor: float | None = None) -> float:
    """On data like the wild ones; with a ``factor`` of 1 on the others."""
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(9))
    y = x[:, :1] * x[:, 1:2] + x.sum(1, keepdim=True)
    return float(nn.functional.mse_loss(training.model.eval()(x), (factor or training.factor) * y))


@pytest.mark.parametrize("most", [2, 3])
def test_outliers_that_a_policy_skips_have_its_bound(most: int, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[symptoms]\nloss-spike = "skip"\n[budget]\nskips-in-a-row = {most}\n', encoding="utf-8")
    training = Training(range(90, 95), factor=5.0)
    actions = training.watched(tmp_path, str(policy))
    assert [(action.what, action.step) for action in actions[:most]] == [
        ("skipped-update", 90 + place) for place in range(most)
    ]
    assert 90 + most not in [action.step for action in actions]
    assert {symptom.name for symptom in recorded(tmp_path).symptoms if symptom.first_step == 90} == {"loss-spike"}


def test_damaged_weights_are_rolled_back(tmp_path: Path) -> None:
    held = Training((), damaged=90)
    actions = held.watched(tmp_path)
    assert [action.what for action in actions if action.what != "reverted"][-3:].count("rolled-back") == 1
    assert float(held.model[3].weight.detach().norm()) < 10


def test_a_squared_error_is_extreme_by_its_loss() -> None:
    random = np.random.default_rng(0)
    norms, losses = np.exp(0.3 * random.standard_normal(200)), 2 + 0.2 * random.standard_normal(200)
    assert is_extreme(norms, 60.0 * norms.max(), losses, 4000.0)
    assert not is_extreme(norms, 60.0 * norms.max(), losses, 400.0)
    assert not is_extreme(norms, 40.0 * norms.max(), losses, 4000.0)
    assert not is_extreme(norms[:30], 60.0 * norms.max(), losses[:30], 4000.0)


def test_a_first_batch_is_extreme_by_those_that_follow() -> None:
    random = np.random.default_rng(0)
    norms, losses = np.exp(0.3 * random.standard_normal(32)), 2 + 0.2 * random.standard_normal(32)
    assert extreme_at_first(norms, losses) is None
    norms[0], losses[0] = 1e5, 1e6
    assert extreme_at_first(norms, losses) == 0
    losses[0] = 3.0
    assert extreme_at_first(norms, losses) is None


def test_losses_that_fall_fast_at_first_are_not_extreme() -> None:
    steps = np.arange(32)
    assert extreme_at_first(100 * 0.8**steps + 1, 1e4 * 0.64**steps + 1) is None


def test_a_first_batch_that_is_wild_is_undone(tmp_path: Path) -> None:
    held, bare, twin = Training((1,)), Training((1,)), Training(())
    actions = held.watched(tmp_path)
    bare.run()
    twin.run()
    assert [(action.what, action.step) for action in actions] == [("rolled-back", HINDSIGHT_STEPS)]
    assert actions[0].after["step"] == 0
    later = [batch_error(training) for training in (held, twin, bare)]
    assert later[0] < 1.5 * later[1] < later[2]


@torch.no_grad()
def batch_error(training: Training) -> float:
    """On data that are not wild."""
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(9))
    y = x[:, :1] * x[:, 1:2] + x.sum(1, keepdim=True)
    return float(nn.functional.mse_loss(training.model.eval()(x), y))


def test_an_extreme_step_that_recurs_is_extreme_again() -> None:
    random = np.random.default_rng(0)
    norms, losses = np.exp(0.3 * random.standard_normal(100)), 2 + 0.2 * random.standard_normal(100)
    norms[10::6], losses[10::6] = 1e9, 1e8
    assert is_extreme(norms, 1e9, losses, 1e8)
    assert not is_extreme(norms, 1e9, losses, 3.0)
    norms[10::2], losses[10::2] = 1e9, 1e8  # so many are the data
    assert not is_extreme(norms, 1e9, losses, 1e8)


def test_wild_batches_from_the_start_on_are_all_undone(tmp_path: Path) -> None:
    """The second one shows that the first was one of several, and that the rate is not at fault."""
    wild = (3, 20, 24, 26, 33, 60, 61, 100)
    held = Training(wild)
    actions = held.watched(tmp_path)
    twin = Training(wild)
    assert [action.step for action in actions if action.what == "rolled-back"] == [20]
    assert [action.step for action in actions if action.what == "skipped-update"] == [20, 24, 26, 33, 60, 61]
    assert [action.step for action in actions if action.what == "applied"] == [99]  # before the update of 100, on trial
    assert {action.what for action in actions} == {"rolled-back", "skipped-update", "applied"}
    twin.run(left_out=[*range(1, 21), *wild])
    assert error(held, factor=1.0) < 1.2 * error(twin, factor=1.0)
