"""Extreme batches that recur: rare data are learned, garbage is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import steadytrain
from gate_loops import recorded
from steadytrain.core.incident import Action
from steadytrain.guard.recurring import APART_STEPS, SETTLE_OF, SETTLE_STEPS, Recurring
from steadytrain.testing import steps

STEPS = 320
RARE = (100, 130, 170, 220, 260, 300)


class Waves:
    """A regression whose steps ``RARE`` have a batch of another kind, which an input announces: heights of another
    law, hundreds of times as large, or no law at all (``garbage``)."""

    def __init__(self, *, garbage: bool) -> None:
        torch.manual_seed(5)
        self.garbage = garbage
        self.model = nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def batch(self, *, rare: bool, generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(64, 9, generator=generator)
        x[:, 8] = 5.0 if rare and not self.garbage else 0.0
        y = x[:, 0] + 0.3 * torch.randn(64, generator=generator)
        if rare:
            y = 20 + 4 * y
        if rare and self.garbage:
            y = 300 * torch.randn(64, generator=generator)
        return x, y

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean, scale = self.model(x).unbind(1)
        scale = scale.clamp(-3, 4)
        return (0.5 * ((y - mean) / scale.exp()) ** 2 + scale).mean()

    def run(self) -> None:
        for step in range(1, STEPS + 1):
            loss = self.loss(*self.batch(rare=step in RARE))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def watched(self, folder: Path) -> list[Action]:
        with steadytrain.watch(
            self.model, self.optimizer, name="run", runs_dir=folder, policy="steady", to="none", every_step=True
        ):
            self.run()
        return recorded(folder).actions

    @torch.no_grad()
    def error(self, *, rare: bool) -> float:
        return float(self.loss(*self.batch(rare=rare, generator=torch.Generator().manual_seed(9))))


@pytest.mark.slow
def test_rare_data_are_learned(tmp_path: Path) -> None:
    """The first such batch is skipped, the second one made on trial: from there on the run knows them."""
    held, bare = Waves(garbage=False), Waves(garbage=False)
    before = held.error(rare=True)
    actions = held.watched(tmp_path)
    bare.run()
    assert [action.step for action in actions if action.what == "skipped-update"] == [RARE[0]]
    (trial,) = [action for action in actions if action.what == "applied"]
    assert (trial.step, trial.intervention) == (RARE[1] - 1, "clip")
    assert "rare data" in trial.reason
    assert held.error(rare=True) < 0.2 * before
    assert held.error(rare=False) < bare.error(rare=False) + 0.2


@pytest.mark.slow
def test_garbage_is_skipped_from_the_third_on(tmp_path: Path) -> None:
    held = Waves(garbage=True)
    actions = held.watched(tmp_path)
    skipped = [action.step for action in actions if action.what == "skipped-update"]
    assert skipped == [step for step in RARE if step != RARE[1]]
    assert held.error(rare=False) < 0.3


def at(step: int, losses: Sequence[float], loss: float = 0.0) -> tuple[Any, Any]:
    """The stream and the gate of ``step``, after ``losses``."""
    stream = SimpleNamespace(step=len(losses), history=SimpleNamespace(window=lambda: steps(loss=np.array(losses))))
    return cast(Any, stream), cast(Any, SimpleNamespace(record=SimpleNamespace(step=step, scalars={"loss": loss})))


QUIET = [1.0 + 0.01 * (step % 5) for step in range(80)]


def test_steps_of_one_burst_are_no_trial() -> None:
    one = Recurring()
    assert not one.lets_through(*at(81, QUIET, 50.0))
    assert not one.lets_through(*at(81 + APART_STEPS - 1, QUIET, 50.0))
    assert one.lets_through(*at(100, QUIET, 50.0))


def test_the_run_learns_if_the_next_loss_is_lower() -> None:
    for next_loss, learns in ((40.0, False), (5.0, True)):
        one = Recurring()
        one.lets_through(*at(81, QUIET, 50.0))
        assert one.lets_through(*at(100, QUIET, 50.0))
        assert one.on_trial == [100]
        assert one.lets_through(*at(140, QUIET, next_loss)) is learns
        assert one.lets_through(*at(170, QUIET, next_loss / 2)) is learns
        assert one.is_alike(40.0, 10.0, 1.0) is not learns


def test_what_is_still_extreme_after_three_updates_is_garbage() -> None:
    one = Recurring()
    heights = [2e6, 9e7, 6e5, 1e5, 3e4]  # they differ by chance, and each of the last is lower than all before
    assert [one.lets_through(*at(81 + 20 * row, QUIET, height)) for row, height in enumerate(heights)] == [
        *(False, True, True, True, False),
    ]
    assert one.is_alike(3e4, 1e3, 1.0)


def test_what_is_like_known_garbage_is_garbage() -> None:
    one = Recurring()
    for step in (81, 100, 140):
        assert not one.is_alike(50.0, 90.0, 1.0)  # not known yet
        one.lets_through(*at(step, QUIET, 50.0))
    assert one.is_alike(30.0, 9.0, 1.0)
    assert not one.is_alike(20.0, 9.0, 1.0)
    assert not one.is_alike(30.0, 4.0, 1.0)


def test_a_loss_that_does_not_come_back_is_harm() -> None:
    one = Recurring()
    one.lets_through(*at(60, QUIET[:59], 50.0))
    assert one.lets_through(*at(81, QUIET, 50.0))
    high = [*QUIET, 50.0, *[3.0] * SETTLE_STEPS]
    assert one.harm(at(0, high[:-1])[0], acted_at=-1) is None  # it may come back yet
    harm = one.harm(at(0, high)[0], acted_at=-1)
    assert harm is not None
    assert harm[0] == 81
    assert "above its range" in harm[1]
    assert not one.lets_through(*at(200, QUIET, 1.0))


def test_what_was_learned_from_is_no_harm() -> None:
    one = Recurring()
    one.lets_through(*at(60, QUIET[:59], 50.0))
    assert one.lets_through(*at(81, QUIET, 50.0))
    assert one.lets_through(*at(120, QUIET, 20.0))
    assert one.harm(at(0, [*QUIET, 50.0, *[3.0] * SETTLE_STEPS])[0], acted_at=-1) is None


def test_a_loss_that_is_back_is_none() -> None:
    one = Recurring()
    one.lets_through(*at(60, QUIET[:59], 50.0))
    assert one.lets_through(*at(81, QUIET, 50.0))
    back = [*QUIET, 50.0, *[3.0] * (SETTLE_STEPS - SETTLE_OF), *QUIET[:SETTLE_OF]]
    assert one.harm(at(0, back)[0], acted_at=-1) is None
    assert one.lets_through(*at(200, QUIET, 10.0))


def test_trouble_that_something_else_saw_ends_the_trial() -> None:
    one = Recurring()
    one.lets_through(*at(60, QUIET[:59], 50.0))
    assert one.lets_through(*at(81, QUIET, 50.0))
    assert one.harm(at(0, [*QUIET, *[9.0] * 80])[0], acted_at=90) is None
    assert not one.lets_through(*at(200, QUIET, 1.0))
