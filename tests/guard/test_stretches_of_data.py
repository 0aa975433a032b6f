"""Data that come for a stretch and go: when it is over, the run returns to the state from before it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import steadytrain
from gate_loops import recorded, same
from steadytrain.core.incident import Action
from steadytrain.guard import state_copies
from steadytrain.guard.state_copies import EVERY_STEPS
from steadytrain.guard.stretches import RETURN_STEPS, STRETCH_STEPS_MAX, Stretch, Stretches
from steadytrain.guard.troubles import SETTLE_STEPS

STEPS, FIRST, END = 260, 180, 210


class Training:
    """A regression on other targets from step ``FIRST`` to before ``END``, and with ``later`` on third ones since."""

    def __init__(self, *, other: bool = True, later: bool = False) -> None:
        torch.manual_seed(5)
        self.other, self.later = other, later
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-2)

    def run(self, left_out: Collection[int] = ()) -> None:
        torch.manual_seed(6)
        weights = torch.randn(3, 8, 1)
        for step in range(1, STEPS + 1):
            x = torch.randn(128, 8)
            kind = 1 if self.other and FIRST <= step < END else 2 if self.later and step >= END else 0
            y = 3 * x @ weights[kind] + 0.1 * torch.randn(128, 1)
            if step in left_out:
                continue
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

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def test_after_a_stretch_the_run_goes_on_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_copies, "COST_SHARE", math.inf)  # on a busy machine copies are further apart
    held, twin = Training(), Training()
    actions = held.watched(tmp_path)
    assert [action.what for action in actions] == ["rolled-back"]
    back = actions[0]
    assert back.step == END + RETURN_STEPS - 1
    assert FIRST - EVERY_STEPS <= back.after["step"] + 1 <= FIRST
    assert "passing-data" in back.reason
    twin.run(left_out=range(int(back.after["step"]) + 1, back.step + 1))
    assert same(held.state(), twin.state())


def test_if_the_data_are_not_what_they_were_the_run_goes_on_from_where_it_was(tmp_path: Path) -> None:
    held, twin = Training(later=True), Training(later=True)
    actions = held.watched(tmp_path)
    backs = [action for action in actions if action.what == "rolled-back"]
    trials = [action for action in backs if "passing-data" in action.reason]
    assert trials
    assert len(backs) == 2 * len(trials)
    twin.run(left_out=[step for one in trials for step in range(one.step + 1, one.step + SETTLE_STEPS + 1)])
    assert same(held.state(), twin.state())


def found(losses: Iterable[float]) -> list[Stretch]:
    stretches, ended = Stretches(), []
    for step, loss in enumerate(losses, 1):
        one = stretches.look(step, loss)
        if one is not None:
            ended.append(one)
            stretches.close()
    return ended


def test_a_stretch_is_two_changes_at_once() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(400)
    usual, learned = 1 + noise[:100], 6 * 0.9 ** np.arange(30) + 2 + noise[100:130]
    (one,) = found([*usual, *learned, *(5 + noise[130:200])])
    assert (one.first, one.end) == (101, 131)
    assert one.before < 1.2 < 1.4 < one.now
    down = found([*usual, *(noise[100:130] - 5), *(4 + noise[130:200])])
    assert [(one.first, one.end) for one in down] == [(101, 131)]


def test_what_is_no_stretch() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(600)
    usual = 1 + noise[:100]
    learned = 6 * 0.97 ** np.arange(400) + 1 + noise[100:500]
    assert found([*usual, *learned]) == []
    assert found([*usual, *(6 + noise[100:130]), *(1 + noise[130:300])]) == []  # no harm was done
    assert found([*usual, 9, 9, *usual, 9, 9, *usual]) == []  # single batches
    long = STRETCH_STEPS_MAX + 1
    assert found([*usual, *(6 + noise[100 : 100 + long]), *(4 + noise[300:400])]) == []
    assert found([*usual, *(6 + noise[100:130]), *np.logspace(2, 30, 20)]) == []  # the weights explode
    assert found([*(6 + noise[:30]), *(3 + noise[30:60]), *(5 + noise[60:90])]) == []  # nothing is usual yet
