"""A run whose data change, and which learns them, is left alone; one whose weights were damaged is rolled back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import steadytrain
from gate_loops import recorded, same
from steadytrain.core.incident import Action
from steadytrain.core.model import Symptom
from steadytrain.guard.corroboration import goes_on, is_a_step, is_digested
from steadytrain.testing import steps

STEPS, CHANGE = 220, 120


class Training:
    """A regression, of which at ``CHANGE`` the targets or the weights become others."""

    def __init__(self, *, other_data: bool = False, damaged: bool = False) -> None:
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.other_data, self.damaged = other_data, damaged

    def run(self) -> None:
        torch.manual_seed(6)
        first, second = torch.randn(2, 8, 1)
        for step in range(1, STEPS + 1):
            x = torch.randn(128, 8)
            y = x @ (first + 2 * second if self.other_data and step >= CHANGE else first) + 0.1 * torch.randn(128, 1)
            if self.damaged and step == CHANGE:
                with torch.no_grad():
                    self.model[2].weight.mul_(4)
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


def test_other_data_that_are_learned_are_left_alone(tmp_path: Path) -> None:
    held, bare = Training(other_data=True), Training(other_data=True)
    assert held.watched(tmp_path) == []
    assert "lost-progress" in {symptom.name for symptom in recorded(tmp_path).symptoms}
    bare.run()
    assert same(held.model.state_dict(), bare.model.state_dict())


def test_weights_that_were_damaged_are_rolled_back(tmp_path: Path) -> None:
    """The loss has the same course: it is high at once, and falls. But the norm of the weights jumped."""
    actions = Training(damaged=True).watched(tmp_path)
    assert actions[0].what == "rolled-back"
    assert actions[0].after["step"] < CHANGE


def test_a_rise_is_of_the_data_if_it_is_a_step() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(40)
    learned = 5 * 0.95 ** np.arange(40) + noise
    assert is_a_step(learned)
    assert is_a_step(np.append(noise[:4], learned))  # the onset was told early
    assert not is_a_step(np.linspace(0.2, 5, 40) + noise)  # weights that go wrong take steps to do so
    assert not is_a_step(np.append(learned[:10], noise[:20] + 1))  # a stretch of bad data, and what it left
    assert not is_a_step(np.append(learned[:10], noise[:20] + 9))
    assert not is_a_step(learned[:6])


QUIET = 1.0 + 0.05 * np.random.default_rng(1).standard_normal(256)


def storms(*at: int, lasts: int = 1, height: float = 20.0) -> NDArray[np.float64]:
    """Losses that rise at these steps, and are back ``lasts`` steps later."""
    losses = QUIET.copy()
    for first in at:
        losses[first : first + lasts] = height
    return losses


def test_a_rise_is_digested_if_the_run_came_back_from_three_as_high() -> None:
    now = np.array([20.0, 1.0, 1.4, 1.3])
    assert is_digested(storms(100, 150, 200), now)
    assert is_digested(storms(100, 150, 200, lasts=4), np.full(6, 20.0))
    assert not is_digested(storms(150, 200), now)  # not often enough
    assert not is_digested(storms(100, 150, 200, height=8.0), now)  # none was as high
    assert not is_digested(storms(100, 150, 200), np.concatenate([now[:1], np.full(8, 3.0)]))  # this one lasts longer
    assert is_digested(np.append(storms(100, 150, 200), np.nan), np.append(now[:2], np.inf))
    assert not is_digested(np.full(40, np.nan), now)
    assert not is_digested(QUIET, np.full(4, np.nan))
    never_back = storms(100, 150)
    never_back[185:] = 20.0
    assert not is_digested(never_back, now)


def told(name: str, first: int, losses: NDArray[np.float64]) -> bool:
    """Whether such a symptom from step ``first`` on goes on, after these losses."""
    stream = SimpleNamespace(history=SimpleNamespace(window=lambda: steps(loss=losses)))
    symptom = Symptom(name, "warning", first, len(losses), "the loss rises", {})
    return goes_on(symptom, cast(Any, stream))


def test_a_spike_that_the_run_digests_does_not_go_on_by_any_name() -> None:
    now = np.append(storms(100, 150, 200, lasts=3), [20.0, 1.5, 1.4, 1.3, 1.2])
    rare = np.append(QUIET, [20.0, 3.5, 3.4, 3.3, 3.2])
    for name in ("loss-spike", "divergence", "exploding-gradients"):
        assert not told(name, 257, now)
        assert told(name, 257, rare)
    assert told("vanishing-weights", 257, now)


def test_a_rise_that_is_nearly_over_is_waited_for() -> None:
    """A single rare batch, from which the run comes back on its own: a roll-back can still be made later."""
    nearly = np.append(QUIET, [30.0, 2.6, 2.4, 2.2, 2.1])
    for name in ("lost-progress", "exploding-gradients"):
        assert not told(name, 257, nearly)
        assert told(name, 257, np.append(nearly, np.full(16, 2.0)))  # it stays there
        assert told(name, 257, np.append(QUIET, [30.0, 9.0, 8.0, 7.0]))  # too little of it is gone
    assert told("lost-progress", 257, np.append(QUIET, np.full(8, 30.0)))


def test_a_loss_that_is_back_does_not_go_on_in_the_first_steps_either() -> None:
    """Two losses take turns: the median of the last three is still that of the other one."""
    turns = np.array([1.3, 1.2, 1.25, 1.2, 1.22, 1.18, 1.2, 1.19, 1.18, 1.18, 8.2, 8.1, 8.2, 8.0, 8.1, 1.19])
    assert not told("lost-progress", 11, turns)
    assert told("lost-progress", 11, turns[:-1])
    assert told("lost-progress", 5, np.array([1.3, 1.2, 1.25, 1.2, 8.2, 8.1, 8.2]))
