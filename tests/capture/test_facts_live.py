"""Facts of a watched run that detectors read: its vocabulary, and how often its scaler tries to double the scale."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from steadytrain.storage.run_folder import open_run
from watching import watching

STEPS = 4


def train(classes: int, *, tokens: bool, scaler: GradScaler | None = None) -> None:
    first = nn.Embedding(classes, 8) if tokens else nn.Linear(8, 8)
    model = nn.Sequential(first, nn.Linear(8, classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        inputs = torch.randint(classes, (2, 8)) if tokens else torch.randn(16, 8)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs).reshape(16, classes), torch.randint(classes, (16,)))
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def known(folder: Path, classes: int, *, tokens: bool, scaler: GradScaler | None = None) -> Mapping[str, float]:
    """What the detectors are given, which is also on record."""
    with watching(folder / "run", "observe") as watcher:
        train(classes, tokens=tokens, scaler=scaler)
        (stream,) = watcher.streams
        facts = stream.history.window().facts
    record = open_run(folder / "run").facts
    assert {name: record[name] for name in facts} == facts
    return facts


@pytest.mark.parametrize(
    ("classes", "tokens", "facts"),
    [(300, True, {"vocabulary": 300.0}), (300, False, {}), (10, True, {})],
    ids=["tokens", "no-tokens", "few-classes"],
)
def test_the_vocabulary(classes: int, tokens: bool, facts: Mapping[str, float], tmp_path: Path) -> None:
    assert known(tmp_path, classes, tokens=tokens) == facts


def test_the_growth_interval_of_a_scaler(tmp_path: Path) -> None:
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=50)
    assert known(tmp_path, 10, tokens=True, scaler=scaler) == {"loss_scale_growth_interval": 50.0}


def test_a_scaler_that_is_off_has_none(tmp_path: Path) -> None:
    assert known(tmp_path, 10, tokens=True, scaler=GradScaler("cpu", enabled=False)) == {}


def test_optimizers_that_take_turns(tmp_path: Path) -> None:
    """Each after a backward of its own; two that step after one backward are one."""
    with watching(tmp_path / "run", "observe") as watcher:
        parts = [nn.Linear(4, 4), nn.Linear(4, 1)]
        optimizers = [torch.optim.SGD(part.parameters(), lr=1e-2) for part in parts]
        for _ in range(STEPS):
            for optimizer in optimizers:
                nn.Sequential(*parts)(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
                for part in parts:
                    part.zero_grad()
        facts = [stream.history.window().facts for stream in watcher.streams]
    assert facts == [{"optimizers_in_turn": 2.0}] * 2


class Critic:
    """A part of a script that holds its own optimizer."""

    def __init__(self) -> None:
        self.net = nn.Linear(4, 1)
        self.critic_optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-2)

    def learn(self) -> None:
        self.critic_optimizer.zero_grad()
        self.net(torch.randn(8, 4)).square().mean().backward()
        self.critic_optimizer.step()


def test_optimizers_are_called_as_in_the_script(tmp_path: Path) -> None:
    def train() -> list[weakref.ref[nn.Module]]:
        actor, critic = nn.Linear(4, 4), Critic()
        actor_optimizer = torch.optim.SGD(actor.parameters(), lr=1e-2)
        for _ in range(STEPS):
            actor_optimizer.zero_grad()
            actor(torch.randn(8, 4)).square().mean().backward()
            actor_optimizer.step()
            critic.learn()
        held = [weakref.ref(actor), weakref.ref(critic.net)]
        del actor, critic, actor_optimizer
        gc.collect()
        assert [one() for one in held] == [None, None]  # looking for a name keeps nothing alive
        return held

    with watching(tmp_path / "run", "observe"):
        train()
    names = open_run(tmp_path / "run").facts["stream_names"]
    assert names == {"main": "actor_optimizer", "optimizer-2": "self.critic_optimizer"}
    others = open_run(tmp_path / "run").facts["other_models"]
    assert others.keys() == {"optimizer-2"}
    assert (others["optimizer-2"]["class"], others["optimizer-2"]["parameters"]) == ("Linear", 5)


def test_one_phase_after_the_other_is_no_turn(tmp_path: Path) -> None:
    """A model that is trained, and then fine-tuned with an optimizer of its own."""
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        kept = []
        for _ in range(2):
            kept.append(torch.optim.SGD(model.parameters(), lr=1e-2))
            for _ in range(STEPS):
                model(torch.randn(8, 4)).square().mean().backward()
                kept[-1].step()
                model.zero_grad()
        facts = [stream.history.window().facts for stream in watcher.streams]
    assert facts == [{}]
