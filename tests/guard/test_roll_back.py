"""A roll-back on a live run: it ends like a run that never made the updates that were undone."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import steadytrain
from gate_loops import recorded, same
from parameters import telling

STEPS, SPIKE = 90, 60
HARDER_FROM = 1_000
"""From this step on the targets are larger."""

ROLL_BACK = """
policy = "steady"
[ladders]
default = ["roll-back"]
nonfinite = ["roll-back"]
"""
MAKERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.5, centered=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=3e-2),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU()
        )
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


class Training:
    """A regression with batch norm, dropout, a schedule and a moving average of the weights."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(5)
        self.model = Net()
        self.average = AveragedModel(self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        self.optimizer = MAKERS[name](self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.losses: list[float] = []
        self.bad = False

    def steps(self, left_out: Collection[int] = ()) -> Iterator[int]:
        for step in range(1, STEPS + 1):
            x = torch.randn(16, 8)
            y = (x[:, :1] * x[:, 1:2] + x.sum(1, keepdim=True)) * (30 if step >= HARDER_FROM else 1)
            if self.bad:
                y, self.bad = y * float("inf"), False
            before = copy.deepcopy(self.model.state_dict()) if step in left_out else None
            if step == SPIKE and before is None:
                with torch.no_grad():
                    self.model.head.weight.mul_(300)
            loss = nn.functional.mse_loss(self.model(x), y)
            self.losses.append(loss.item())
            self.optimizer.zero_grad()
            if before is None:
                loss.backward()
                self.optimizer.step()
                self.average.update_parameters(self.model)
            else:
                self.model.load_state_dict(before)
            self.schedule.step()
            yield step

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": torch.get_rng_state(),
        }


def policy_file(folder: Path, text: str = ROLL_BACK) -> str:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def watched(name: str, folder: Path, policy: str) -> Training:
    training = Training(name)
    with steadytrain.watch(training.model, training.optimizer, name="run", runs_dir=folder, policy=policy, to="none"):
        for _ in training.steps():
            pass
    return training


@pytest.mark.parametrize("name", telling(MAKERS, list(MAKERS)[:2]))
def test_the_run_ends_as_one_that_never_made_the_updates(name: str, tmp_path: Path) -> None:
    steered = watched(name, tmp_path, policy_file(tmp_path))
    actions = recorded(tmp_path).actions
    assert {action.what for action in actions[:-1]} <= {"skipped-update"}
    assert actions[-1].what == "rolled-back"
    first, last = int(actions[-1].after["step"]) + 1, int(actions[-1].before["step"])
    assert first < SPIKE <= last
    twin = Training(name)
    for _ in twin.steps(left_out=range(first, last + 1)):
        pass
    assert steered.losses[last:] == twin.losses[last:]
    assert same(steered.state(), twin.state())


def test_a_healthy_run_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_roll_back.SPIKE", -1)
    steered = watched("AdamW", tmp_path, "steady")
    bare = Training("AdamW")
    for _ in bare.steps():
        pass
    assert same(steered.state(), bare.state())
    assert recorded(tmp_path).actions == ()


def test_a_roll_back_that_did_not_help_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task became harder, and the weights are as good as they were: they go on from where they were."""
    monkeypatch.setattr("test_roll_back.SPIKE", -1)
    monkeypatch.setattr("test_roll_back.HARDER_FROM", 60)
    steered = watched("AdamW", tmp_path, policy_file(tmp_path))
    back, again = recorded(tmp_path).actions
    assert (back.what, again.what) == ("rolled-back", "rolled-back")
    assert "the data changed" in again.reason
    assert back.after["step"] < 60 <= again.after["step"] == back.before["step"]
    twin = Training("AdamW")
    for _ in twin.steps(left_out=range(int(again.after["step"]) + 1, int(again.before["step"]) + 1)):
        pass
    parts = ("model", "optimizer", "schedule", "random")
    assert same({name: steered.state()[name] for name in parts}, {name: twin.state()[name] for name in parts})


def test_a_bad_batch_among_other_data_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rise of the loss is known to be that of the data, so the weights have not left their course."""
    monkeypatch.setattr("test_roll_back.SPIKE", -1)
    monkeypatch.setattr("test_roll_back.HARDER_FROM", 60)
    training = Training("AdamW")
    with steadytrain.watch(
        training.model, training.optimizer, name="run", runs_dir=tmp_path, policy="steady", to="none"
    ):
        for step in training.steps():
            if step in (81, 84):
                training.bad = True
    actions = recorded(tmp_path).actions
    changed = next(at for at, action in enumerate(actions) if "the data changed" in action.reason)
    later = [action.what for action in actions[changed:] if "the data changed" not in action.reason]
    assert later == ["skipped-update", "skipped-update"]


def test_nothing_is_changed_where_the_last_state_from_before_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the roll-back nothing shows whether the weights or the data changed."""
    monkeypatch.setattr("test_roll_back.SPIKE", -1)
    monkeypatch.setattr("test_roll_back.HARDER_FROM", 60)
    monkeypatch.setattr("steadytrain.guard.live.UNDONE_MAX", 0)
    steered = watched("AdamW", tmp_path, "steady")
    (action,) = recorded(tmp_path).actions
    assert (action.what, action.intervention) == ("not-applied", "roll-back")
    assert "updates ago, so nothing is changed" in action.reason
    bare = Training("AdamW")
    for _ in bare.steps():
        pass
    assert same(steered.state(), bare.state())


def test_the_undone_steps_are_forgotten_and_the_incident_is_kept(tmp_path: Path) -> None:
    watched("AdamW", tmp_path, "steady")
    run = recorded(tmp_path)
    made = [action for action in run.actions if action.what != "skipped-update"]
    assert [(action.what, action.intervention) for action in made] == [
        ("rolled-back", "roll-back"),
        ("applied", "clip"),
    ]
    assert made[1].after["gradient_norm_max"] > 0
    assert all(action.by == "policy" and action.policy == "steady" for action in run.actions)
    assert len(run.incidents) == 1
    assert [symptom.severity for symptom in run.symptoms if symptom.first_step > made[0].before["step"]] == []


def test_a_spent_ladder_stops_the_run(tmp_path: Path) -> None:
    training = Training("AdamW")
    policy = policy_file(tmp_path, ROLL_BACK + "[budget]\nrollbacks = 0\n")
    with (
        pytest.raises(steadytrain.RunStopped, match="spent"),
        steadytrain.watch(training.model, training.optimizer, name="run", runs_dir=tmp_path, policy=policy, to="none"),
    ):
        for _ in training.steps():
            pass
    assert [action.what for action in recorded(tmp_path).actions] == ["stopped"]
