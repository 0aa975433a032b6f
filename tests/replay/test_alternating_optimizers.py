"""Replays of loops in which two optimizers take turns: each can be replayed by its own steps, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses

from replaying import plain_process, record, replay
from steadytrain.replay.verdict import Replayed

STEPS, EVERY = 12, 4


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with plain_process():
        yield


def gan() -> None:
    """The generator steps second; its batch norm has buffers, and the samples of the first step come before it."""
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    judge = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    of_judge = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
    of_made = torch.optim.Adam(made.parameters(), lr=2e-3, betas=(0.5, 0.999))
    slower = torch.optim.lr_scheduler.StepLR(of_made, 3, 0.5)
    for _ in range(STEPS):
        real = 4 + torch.randn(16, 2)
        fake = made(torch.randn(16, 4))
        of_judge.zero_grad()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()).backward()
        of_judge.step()
        of_made.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        of_made.step()
        slower.step()


def actor_critic() -> None:
    """The critic steps second. The rollout calls the actor without gradients and samples from it."""
    torch.manual_seed(5)
    actor = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    critic = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-2)
    of_critic = torch.optim.SGD(critic.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(STEPS):
        at, seen, chosen, gained = torch.full((6,), 2), [], [], []
        for _ in range(4):
            seen.append(F.one_hot(at, 5).float())
            with torch.no_grad():
                chosen.append(torch.distributions.Categorical(logits=actor(seen[-1])).sample())
            at = (at + 2 * chosen[-1] - 1).clamp(0, 4)
            gained.append((at == 4).float())
        states, actions, gains = torch.cat(seen), torch.cat(chosen), torch.cat(gained)
        value = critic(states).squeeze(-1)
        policy = torch.distributions.Categorical(logits=actor(states))
        of_actor.zero_grad()
        (-(policy.log_prob(actions) * (gains - value.detach())).mean()).backward()
        of_actor.step()
        of_critic.zero_grad()
        (value - gains).pow(2).mean().backward()
        of_critic.step()


def one_in_three() -> None:
    """The judge steps three times for each step of the generator, which takes its turn late and second."""
    torch.manual_seed(7)
    made, judge = nn.Linear(4, 2), nn.Linear(2, 1)
    of_judge = torch.optim.RMSprop(judge.parameters(), lr=1e-3)
    of_made = torch.optim.RMSprop(made.parameters(), lr=1e-3)
    for _ in range(STEPS // 3 * 2):
        for _ in range(3):
            of_judge.zero_grad()
            (judge(made(torch.randn(8, 4)).detach()).mean() - judge(2 + torch.randn(8, 2)).mean()).backward()
            of_judge.step()
        of_made.zero_grad()
        (-judge(made(torch.randn(8, 4))).mean()).backward()
        of_made.step()


def judge_second() -> None:
    """The judge steps second, on samples from before the generator's step."""
    torch.manual_seed(9)
    made = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    judge = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_made = torch.optim.Adam(made.parameters(), lr=1e-3)
    of_judge = torch.optim.Adam(judge.parameters(), lr=1e-2)
    for _ in range(STEPS):
        fake = made(torch.randn(8, 4))
        of_made.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        of_made.step()
        of_judge.zero_grad()
        (F.softplus(-judge(4 + torch.randn(8, 2))).mean() + F.softplus(judge(fake.detach())).mean()).backward()
        of_judge.step()


@pytest.mark.parametrize("loop", [gan, actor_critic, judge_second, one_in_three])
@pytest.mark.parametrize("stream", ["main", "optimizer-2"])
def test_each_optimizer_is_replayed_to_the_last_bit(loop: Callable[[], None], stream: str, tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY, stream=stream)
    start = recording.starts()[-1]
    assert start > EVERY, "there is a snapshot within the run"
    replayed = replay(loop, recording, start, own_steps=start - 1)
    assert isinstance(replayed, Replayed)
    assert replayed.first_difference is None
    assert replayed.steps == recording.last_step - start + 1


def test_a_second_optimizer_is_replayed_from_its_first_snapshot(tmp_path: Path) -> None:
    """Its first step is on no tape, so the rollout of the second draws from the script's own state."""
    recording = record(actor_critic, tmp_path / "run", every=EVERY, stream="optimizer-2")
    assert recording.starts()[0] == 2
    replayed = replay(actor_critic, recording, 2)
    assert isinstance(replayed, Replayed)
    assert replayed.first_difference is None
