"""Optimizers that take turns rest together: bit-identical, guarded, and counted each by its own steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from resting_loops import pace, resting
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.resting_streams import Turns
from steadytrain.storage.run_folder import Run, open_run

IN_A_REST = 80
"""A turn of the first rest, of turns 64 to 96."""

Pair = tuple[nn.Sequential, nn.Sequential]
Bad = Callable[[int, str, Tensor], Tensor]


def networks() -> Pair:
    torch.manual_seed(0)
    return (
        nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)),
        nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 8)),
    )


def as_it_is(turn: int, part: str, loss: Tensor) -> Tensor:
    return loss


def alternate(turns: int, *, critics: int = 1, pair: Pair | None = None, bad: Bad = as_it_is) -> list[float]:
    """Train a critic, ``critics`` times a turn, and a generator. Returns the losses, which ``bad`` may change."""
    torch.set_num_threads(1)
    critic, generator = pair or networks()
    torch.manual_seed(1)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    rows = torch.randn(512, 8) @ torch.randn(8, 8)
    losses = []
    for turn in range(1, turns + 1):
        for _ in range(critics):
            real, made = rows[torch.randint(0, 512, (16,))], generator(torch.randn(16, 4)).detach()
            loss = nn.functional.softplus(-critic(real)).mean() + nn.functional.softplus(critic(made)).mean()
            loss = bad(turn, "critic", loss)
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            losses.append(loss.item())
        loss = bad(turn, "generator", nn.functional.softplus(-critic(generator(torch.randn(16, 4)))).mean())
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
        losses.append(loss.item())
    return losses


def weights(pair: Pair) -> list[Tensor]:
    return [parameter.detach().clone() for model in pair for parameter in model.parameters()]


def gaps(run: Run, stream: str) -> list[int]:
    """The recorded steps that do not follow on the one before."""
    steps = run.scalars(stream).steps.tolist()
    return [step for step, before in zip(steps[1:], steps, strict=False) if step != before + 1]


@pytest.mark.parametrize("critics", [1, 3])
def test_they_rest_bit_for_bit_and_the_steps_of_each_go_on(critics: int, tmp_path: Path) -> None:
    plain, ours = networks(), networks()
    bare = alternate(400, critics=critics, pair=plain)
    with resting(tmp_path / "run", pace=pace()) as watcher:
        losses = alternate(400, critics=critics, pair=ours)
    assert losses == bare
    assert all(torch.equal(one, other) for one, other in zip(weights(plain), weights(ours), strict=True))
    assert [stream.step for stream in watcher.streams] == [400 * critics, 400]
    run = open_run(tmp_path / "run")
    begins = gaps(run, "main"), gaps(run, "optimizer-2")
    assert len(begins[0]) == len(begins[1]) >= 2
    assert all(step % 16 == 1 for step in begins[1])  # the bursts begin after a multiple of 16 turns
    assert [step - 1 for step in begins[0]] == [critics * (step - 1) for step in begins[1]]  # and with a whole turn
    rests = run.facts["rests"]
    assert rests["rested"] == 400 - len(run.scalars("optimizer-2").steps)


@pytest.mark.parametrize("part", ["critic", "generator"])
def test_a_loss_that_is_not_finite_is_refused_before_the_update_of_its_optimizer(part: str, tmp_path: Path) -> None:
    at = IN_A_REST

    def breaks(turn: int, of: str, loss: Tensor) -> Tensor:
        if turn == at and of == part:
            states.append(weights(pair))
            return loss * math.nan
        return loss

    told: list[str] = []
    states: list[list[Tensor]] = []
    pair = networks()
    with pytest.raises(steadytrain.RunStopped), resting(tmp_path / "run", told, pace=pace()):
        alternate(at + 20, pair=pair, bad=breaks)
    assert all(torch.equal(one, other) for one, other in zip(states[0], weights(pair), strict=True))
    (incident,) = open_run(tmp_path / "run").open_incidents()
    assert (incident.step, incident.action.what) == (at, "refused-update")
    assert incident.stream == ("main" if part == "critic" else "optimizer-2")
    assert incident.micro_batches
    assert f"step {at} was not recorded, because the run rested since step" in incident.batch_note
    assert any("weights and optimizer state are as they were before the step" in text for text in told)


def test_a_gradient_that_is_not_finite_is_refused_for_the_second_optimizer_too(tmp_path: Path) -> None:
    at = IN_A_REST

    def breaks(turn: int, of: str, loss: Tensor) -> Tensor:
        """The root of zero: the loss is finite, its gradient is not."""
        return loss + (loss - loss.detach()).sqrt() if turn == at and of == "generator" else loss

    pair = networks()
    with pytest.raises(steadytrain.RunStopped), resting(tmp_path / "run", pace=pace()):
        alternate(at + 20, pair=pair, bad=breaks)
    assert all(torch.isfinite(one).all() for one in weights(pair))
    (incident,) = open_run(tmp_path / "run").open_incidents()
    assert (incident.step, incident.stream) == (at, "optimizer-2")
    assert {symptom.name for symptom in incident.symptoms} == {"nonfinite-gradient"}


def test_two_optimizers_that_step_together_rest_and_count_once(tmp_path: Path) -> None:
    def train(model: nn.Sequential) -> list[float]:
        torch.set_num_threads(1)
        optimizers = torch.optim.SGD(model[0].parameters(), lr=1e-2), torch.optim.Adam(model[2].parameters(), lr=1e-3)
        losses = []
        for _ in range(400):
            inputs = torch.randn(16, 8)
            loss = (model(inputs) - inputs[:, :1]).square().mean()
            for one in optimizers:
                one.zero_grad()
            loss.backward()
            for one in optimizers:
                one.step()
            losses.append(loss.item())
        return losses

    bare = train(networks()[0])
    with resting(tmp_path / "run", pace=pace()) as watcher:
        losses = train(networks()[0])
    assert losses == bare
    assert [stream.step for stream in watcher.streams] == [400]
    run = open_run(tmp_path / "run")
    assert len(gaps(run, "main")) >= 2
    seen = run.scalars("main")
    numbers = zip(seen.steps.tolist(), seen.signals["loss"].tolist(), strict=True)
    assert all(loss == pytest.approx(bare[step - 1], rel=1e-6) for step, loss in numbers)


def stream(name: str) -> Stream:
    made = Stream(name, None)  # type: ignore[arg-type]
    made.join(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1))
    return made


@pytest.mark.parametrize(
    ("order", "last", "updates"),
    [("ab", "b", 2.0), ("aaab", "b", 4.0), ("a", "a", 1.0), ("a" * 40 + "b", "a", 1.0)],
)
def test_the_last_of_those_that_step_often_ends_a_turn(order: str, last: str, updates: float) -> None:
    turns, streams = Turns(), {name: stream(name) for name in "ab"}
    for name in (order * 80)[:160]:
        turns.stepped(streams[name])
    ends = turns.last_of(list(streams.values()))
    assert ends is streams[last]
    assert turns.steps_in_a_turn(ends) == pytest.approx(updates, abs=0.05)


def test_who_ends_a_turn_is_not_known_at_once() -> None:
    turns, one, other = Turns(), stream("a"), stream("b")
    turns.stepped(one)
    assert turns.last_of([one, other]) is None
    assert turns.last_of([one]) is one
