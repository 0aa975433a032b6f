"""Training loops as others write them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from other_peoples_modules import Bag, InPlace, Marked, Normed, OwnSteps  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from fingerprint import STEPS, Training  # noqa: E402

# -- loops -------------------------------------------------------------------------------------------------------------


def plain(model: nn.Module, *, loss: Callable[[Any], Tensor] = lambda y: y.pow(2).mean()) -> Callable[[Training], None]:
    """The usual loop with AdamW and gradient clipping."""

    def loop(training: Training) -> None:
        trained = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.01)
        training.owns(trained, optimizer)
        for step in training.steps():
            optimizer.zero_grad()
            value = loss(trained(training.batch(step, 6, 8)))
            value.backward()
            nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
            training.went_back(step, value)
            optimizer.step()
            training.updated(step)

    return loop


def parameters_join(training: Training) -> None:
    """A layer is made and given to the optimizer in the middle of the run."""
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    head = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW([*layers.parameters(), *head.parameters()], lr=0.01)
    training.owns(layers, head, optimizer)
    for step in training.steps():
        if step == 3:
            layers.append(nn.Linear(8, 8))
            optimizer.add_param_group({"params": layers[-1].parameters(), "lr": 0.1})
        optimizer.zero_grad()
        loss = head(layers(training.batch(step, 6, 8))).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def frozen_half(training: Training) -> None:
    model = Normed()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def scheduled(training: Training) -> None:
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS + 2)
    training.owns(model, optimizer, scheduler)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)
        scheduler.step()


def evaluated(training: Training) -> None:
    """An evaluation with another random draw stands between the steps."""
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)
        if step % 2 == 0:
            model.eval()
            with torch.no_grad():
                model(torch.randn(6, 8))
            model.train()


def accumulated(training: Training) -> None:
    model = Normed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        losses = []
        for micro_step in range(3):
            loss = model(training.batch(step if micro_step == 1 else 0, 6, 8)).pow(2).mean()
            (loss / 3).backward()
            losses.append(loss.detach())
        training.went_back(step, torch.stack(losses).mean())
        optimizer.step()
        training.updated(step)


def gan(training: Training) -> None:
    """Two optimizers take turns, two backward passes a round."""
    generator, critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)), InPlace()
    forger = torch.optim.Adam(generator.parameters(), lr=0.01)
    judge = torch.optim.Adam(critic.parameters(), lr=0.01)
    training.owns(generator, critic, forger, judge)
    for step in training.steps():
        real, noise = training.batch(step, 6, 8), torch.randn(6, 4)
        judge.zero_grad()
        loss = functional.softplus(-critic(real)).mean() + functional.softplus(critic(generator(noise).detach())).mean()
        loss.backward()
        training.went_back(step, loss)
        judge.step()
        training.updated(step)
        forger.zero_grad()
        loss = functional.softplus(-critic(generator(noise))).mean()
        loss.backward()
        forger.step()
        training.updated(step)


def two_kinds_of_optimizer(training: Training) -> None:
    """Matrices go to one optimizer and the rest to another; both step after the same backward."""
    model = Normed()
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    optimizers = [torch.optim.SGD(matrices, lr=0.01, momentum=0.9), torch.optim.AdamW(others, lr=0.01)]
    training.owns(model, *optimizers)
    for step in training.steps():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        for optimizer in optimizers:
            optimizer.step()
        training.updated(step)


def closure_of(make: Callable[[Any], torch.optim.Optimizer]) -> Callable[[Training], None]:
    def loop(training: Training) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = make(model.parameters())
        training.owns(model, optimizer)
        for step in training.steps():
            batch, losses = training.batch(step, 6, 8), []

            def closure(batch: Tensor = batch, losses: list[Tensor] = losses) -> Tensor:
                optimizer.zero_grad()
                loss = (model(batch) - 1).pow(2).mean()
                loss.backward()
                losses.append(loss)
                return loss

            optimizer.step(closure)
            training.went_back(step, losses[-1])
            training.updated(step)

    return loop


def scaled(make: Callable[[Any], torch.optim.Optimizer]) -> Callable[[Training], None]:
    def loop(training: Training) -> None:
        model = Normed()
        optimizer = make(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        training.owns(model, optimizer, scaler)
        for step in training.steps():
            optimizer.zero_grad()
            loss = model(training.batch(step, 6, 8)).pow(2).mean()
            scaler.scale(loss).backward()
            training.went_back(step, loss)
            scaler.step(optimizer)
            scaler.update()
            training.updated(step)

    return loop


def tensors_in_a_list(training: Training) -> None:
    """No torch.nn.Module anywhere."""
    weights = [torch.randn(8, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)]
    optimizer = torch.optim.SGD(weights, lr=0.01)
    training.owns(weights, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = ((training.batch(step, 6, 8) @ weights[0]).relu() @ weights[1]).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def averaged_copy(training: Training) -> None:
    """The model is copied in the middle of the run, and the copy follows by moving average."""
    model, average = Normed(), None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        if average is None:
            average = copy.deepcopy(model)
            training.owns(model, average, optimizer)
        else:
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)
                average.eval()(torch.randn(6, 8))
        training.updated(step)


def sparse(training: Training) -> None:
    model = Bag()
    rows = torch.optim.SparseAdam(model.words.parameters(), lr=0.01)
    rest = torch.optim.AdamW(model.head.parameters(), lr=0.01)
    training.owns(model, rows, rest)
    for step in training.steps():
        rows.zero_grad()
        rest.zero_grad()
        loss = model(torch.randint(50, (6, 5)), training.batch(step, 6, 5)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss)
        rows.step()
        rest.step()
        training.updated(step)


def own_training_step(training: Training) -> None:
    model = OwnSteps()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training.owns(model, optimizer)
    for step in training.steps():
        loss = model.training_step(training.batch(step, 6, 8))
        optimizer.zero_grad()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)


def subclassed(training: Training) -> None:
    model = nn.Linear(8, 1)
    model.weight = nn.Parameter(model.weight.detach().as_subclass(Marked))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    training.owns(model, optimizer)
    for step in training.steps():
        optimizer.zero_grad()
        loss = model(training.batch(step, 6, 8).as_subclass(Marked)).pow(2).mean()
        loss.backward()
        training.went_back(step, loss.as_subclass(Tensor))
        optimizer.step()
        training.updated(step)


@dataclass(frozen=True)
class Case:
    """A loop, and the note that the watcher makes about it."""

    name: str
    loop: Callable[[Training], None]
    note: str | None = None
