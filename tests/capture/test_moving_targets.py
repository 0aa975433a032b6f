"""Whether the targets of the loss move with the model, by what a watched script does; and loops that look alike."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from parameters import telling
from steadytrain.core.model import COPY_FOLLOWS, OWN_OUTPUTS, OWN_ROLLOUTS
from watching import watching

STEPS = 40
ROWS = 16
Loop = Callable[[nn.Module, torch.optim.Optimizer], None]


WIDTHS = itertools.count(41)


class Width:
    now = 40


@pytest.fixture(autouse=True)
def shapes_of_its_own() -> None:
    """Nets of other tests that are still alive would look like copies, and only a few copies are followed."""
    Width.now = next(WIDTHS)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, Width.now), nn.Tanh(), nn.Linear(Width.now, 1))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor | None = None) -> None:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), inputs[:, :1] if targets is None else targets).backward()
    optimizer.step()


@torch.no_grad()
def follow(target: nn.Module, model: nn.Module, share: float) -> None:
    for one, other in zip(target.parameters(), model.parameters(), strict=True):
        one.data.copy_(share * other.data + (1 - share) * one.data)


def target_network(every: int, share: float, *, detached: bool = False, mode: bool = True) -> Loop:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        target = copy.deepcopy(model).train(mode)
        for number in range(STEPS):
            inputs = torch.randn(ROWS, 4)
            with torch.set_grad_enabled(detached):
                wanted = 1 + 0.9 * target(torch.randn(ROWS, 4)).detach()
            step(model, optimizer, inputs, wanted)
            if number % every == every - 1:
                follow(target, model, share)

    return train


def teacher(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Of the same shape as the model, and fixed."""
    fixed = net()
    for _ in range(STEPS):
        inputs = torch.randn(ROWS, 4)
        with torch.no_grad():
            wanted = fixed(inputs)
        step(model, optimizer, inputs, wanted)


def averaged(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """An average of the weights that is evaluated now and then."""
    average = copy.deepcopy(model)
    for number in range(STEPS):
        step(model, optimizer, torch.randn(ROWS, 4))
        follow(average, model, 0.1)
        if number % 10 == 9:
            with torch.no_grad():
                for _ in range(20):
                    average(torch.randn(ROWS, 4))


def two_models(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Another model of the same shape, trained beside it."""
    other = net()
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(STEPS):
        inputs = torch.randn(ROWS, 4)
        with torch.no_grad():
            wanted = other(inputs)
        step(model, optimizer, inputs, wanted)
        step(other, second, inputs)


def half_built(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Objects whose ``__init__`` raised are held by a traceback, a debugger or a cell of a notebook."""
    refused = [nn.Module.__new__(nn.Sequential), torch.optim.SGD.__new__(torch.optim.SGD)]
    target_network(8, 1.0)(model, optimizer)
    del refused


def rollouts(steps_each: int) -> Loop:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(STEPS // steps_each):
            seen = []
            with torch.no_grad():
                for _ in range(16):
                    seen.append(torch.randn(2, 4))
                    model(seen[-1])
            rows = torch.cat(seen)
            for _ in range(steps_each):
                step(model, optimizer, rows[torch.randperm(len(rows))[:ROWS]])

    return train


def evaluated(inputs: Callable[[], Iterator[Tensor]], batch: Callable[[], Tensor], every: int = 4) -> Loop:
    """The model is evaluated in training mode on ``inputs``, every few steps, and first of all."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for number in range(STEPS):
            if number % every == 0:
                with torch.no_grad():
                    for rows in inputs():
                        model(rows)
            step(model, optimizer, batch())

    return train


def ahead(chunks: int) -> Loop:
    """A pass without gradients over the rows of the step: cached gradients, or a choice among samples."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(STEPS):
            parts = [torch.randn(ROWS, 4) for _ in range(chunks)]
            with torch.no_grad():
                for part in parts:
                    model(part)
            optimizer.zero_grad()
            for part in parts:
                nn.functional.mse_loss(model(part), part[:, :1]).backward()
            optimizer.step()

    return train


def checkpointed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.randn(ROWS, 4, requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, inputs, use_reentrant=True).square().mean().backward()
        optimizer.step()


DATA = torch.randn(8 * ROWS, 4, generator=torch.Generator().manual_seed(1))
VALIDATION = torch.randn(8 * ROWS, 4, generator=torch.Generator().manual_seed(2))


def random_batch() -> Tensor:
    return DATA[torch.randperm(len(DATA))[:ROWS]]


def shuffled() -> Iterator[Tensor]:
    yield from DATA[torch.randperm(len(DATA))].split(ROWS)


def square(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).pow(2).mean()


def codebook(distance: Callable[[Tensor, Tensor], Tensor], *, both: bool = True) -> Loop:
    """The net draws near to codes, and with ``both`` the codes to it; else two terms draw the net to fixed codes."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        codes = nn.Parameter(torch.randn(8, 1))
        optimizer.add_param_group({"params": [codes]})
        for _ in range(STEPS):
            optimizer.zero_grad()
            made = model(torch.randn(ROWS, 4))
            near = codes[torch.cdist(made, codes).argmin(1)]
            other = distance(near, made.detach()) if both else distance(made, near.detach() + 1)
            (other + 0.25 * distance(made, near.detach())).backward()
            optimizer.step()

    return train


def bootstrapped(*, rows: int = ROWS, fixed: bool = False, mode: bool = True) -> Loop:
    """Values of the states after, by the model itself, are the targets, or look as if they were."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(STEPS):
            model.train(mode)
            with torch.no_grad():
                after = model(VALIDATION[:rows] if fixed else torch.randn(rows, 4))
            model.train()
            step(model, optimizer, torch.randn(ROWS, 4), 1 + 0.9 * after[:1].expand(ROWS, 1))

    return train


MOVING: Mapping[str, tuple[Loop, float]] = {
    "a copy now and then": (target_network(8, 1.0), COPY_FOLLOWS),
    "a copy that follows slowly": (target_network(1, 0.01), COPY_FOLLOWS),
    "a copy in evaluation mode": (target_network(1, 0.01, mode=False), COPY_FOLLOWS),
    "a copy whose output is detached": (target_network(8, 1.0, detached=True), COPY_FOLLOWS),
    "a copy beside objects whose init raised": (half_built, COPY_FOLLOWS),
    "rollouts": (rollouts(8), OWN_ROLLOUTS),
    "rollouts for each step": (rollouts(1), OWN_ROLLOUTS),
    "values of the model itself": (bootstrapped(), OWN_OUTPUTS),
    "codes and outputs": (codebook(nn.functional.mse_loss), OWN_OUTPUTS),
    "codes and outputs, squared by hand": (codebook(square), OWN_OUTPUTS),
}
STILL: Mapping[str, Loop] = {
    "a teacher": teacher,
    "an average that is evaluated": averaged,
    "a second model in training": two_models,
    "a copy that is never renewed": target_network(STEPS + 1, 1.0),
    "validation data": evaluated(lambda: iter(VALIDATION.split(ROWS)), random_batch),
    "validation data after each step": evaluated(lambda: iter(VALIDATION.split(ROWS)), random_batch, every=1),
    "the training data": evaluated(lambda: iter(DATA.split(ROWS)), random_batch),
    "the training data, shuffled": evaluated(shuffled, random_batch),
    "all training data in each step": evaluated(lambda: iter([DATA] * 4), lambda: DATA, every=1),
    "samples before they are trained on": ahead(1),
    "cached gradients": ahead(8),
    "checkpointed": checkpointed,
    "fixed rows at each step": bootstrapped(fixed=True),
    "another number of rows at each step": bootstrapped(rows=ROWS // 2),
    "new rows in evaluation mode": bootstrapped(mode=False),
    "two distances to codes": codebook(nn.functional.mse_loss, both=False),
    "two squares": codebook(square, both=False),
}
ALIKE = {
    *("a copy that follows slowly", "rollouts for each step", "codes and outputs, squared by hand", "two squares"),
    *("validation data after each step", "the training data, shuffled", "samples before they are trained on"),
}


def fact_of(loop: Loop, folder: Path) -> float | None:
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        model = net()
        loop(model, torch.optim.SGD(model.parameters(), lr=0.01))
        return watcher.streams[0].history.window().facts.get("moving_targets")


@pytest.mark.parametrize("name", telling(MOVING, set(MOVING) - ALIKE))
def test_targets_that_move(name: str, tmp_path: Path) -> None:
    loop, fact = MOVING[name]
    assert fact_of(loop, tmp_path) == fact


@pytest.mark.parametrize("name", telling(STILL, set(STILL) - ALIKE))
def test_targets_that_do_not(name: str, tmp_path: Path) -> None:
    assert fact_of(STILL[name], tmp_path) is None


class Learner(nn.Module):
    """An encoder, and a copy of it that follows it, in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = net(), net().requires_grad_(requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.target(inputs + 0.1)
        return nn.functional.mse_loss(self.online(inputs), wanted)


def test_a_copy_inside_the_model(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        learner = Learner()
        optimizer = torch.optim.SGD(learner.online.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            learner(torch.randn(ROWS, 4)).backward()
            optimizer.step()
            follow(learner.target, learner.online, 0.1)
        assert watcher.streams[0].history.window().facts["moving_targets"] == COPY_FOLLOWS


def test_rollouts_of_images(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 1))
    with watching(tmp_path / "run", "observe") as watcher:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            seen = [torch.randn(2, 1, 8, 8) for _ in range(16)]
            with torch.no_grad():
                for images in seen:
                    model(images)
            for _ in range(4):
                step(model, optimizer, torch.cat(seen)[torch.randperm(32)[:ROWS]], torch.ones(ROWS, 1))
        assert watcher.streams[0].history.window().facts["moving_targets"] == OWN_ROLLOUTS


def test_the_copy_has_no_hook_when_it_is_known_or_the_watch_is_over(tmp_path: Path) -> None:
    model = net()
    copies = [copy.deepcopy(model) for _ in range(2)]
    with watching(tmp_path / "run", "observe"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            step(model, optimizer, torch.randn(ROWS, 4), copies[0](torch.randn(ROWS, 4)).detach())
        assert [len(one._forward_pre_hooks) for one in copies] == [1, 1]
        assert not copy.deepcopy(copies[0])._forward_pre_hooks
        for _ in range(STEPS):
            step(model, optimizer, torch.randn(ROWS, 4), copies[0](torch.randn(ROWS, 4)).detach())
            follow(copies[0], model, 0.5)
        assert not copies[0]._forward_pre_hooks
    assert not any(one._forward_pre_hooks for one in copies)


def stale(folder: Path, *, same_rows: bool = False, every: int = 1000, renewed: bool = False) -> bool:
    """Whether a copy is reported that is updated ``every`` so many steps, and made anew first if it is ``renewed``."""
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        model = net()
        target = net() if renewed else copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for number in range(1, 141):
            inputs = torch.randn(ROWS, 4)
            with torch.no_grad():
                wanted = 1 + 0.9 * target(inputs if same_rows else torch.randn(ROWS, 4))
            step(model, optimizer, inputs, wanted)
            if number % every == 0:
                follow(target, model, 1.0)
    return "stale-target" in {one.name for one in watcher.symptoms}


def test_a_target_that_is_never_updated(tmp_path: Path) -> None:
    assert stale(tmp_path)


@pytest.mark.parametrize("how", [{"same_rows": True}, {"every": 50}, {"renewed": True}])
def test_copies_that_are_meant(how: dict[str, Any], tmp_path: Path) -> None:
    assert not stale(tmp_path, **how)


def shared(folder: Path, made: Callable[[nn.Module], nn.Module], *, every: int = 1) -> bool:
    """Whether a target that is ``made`` of the model, and runs every so many steps, is said to share its parameters."""
    torch.manual_seed(0)
    with watching(folder / "run", "observe") as watcher:
        model = net()
        target = made(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for number in range(1, 101):
            wanted = torch.randn(ROWS, 1)
            if number % every == 0:
                with torch.no_grad():
                    wanted = 1 + 0.9 * target(torch.randn(ROWS, 4))[:, :1]
            step(model, optimizer, torch.randn(ROWS, 4), wanted)
    return "shared-target" in {one.name for one in watcher.symptoms}


def test_a_shallow_copy_shares_its_parameters(tmp_path: Path) -> None:
    assert shared(tmp_path, copy.copy)


class _Frozen(nn.Module):
    """A wrapper of another class."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).detach()


@pytest.mark.parametrize(
    ("made", "every"),
    [(copy.deepcopy, 1), (lambda model: model, 1), (_Frozen, 1), (copy.copy, 4)],
    ids=["a deep copy", "the model itself", "a wrapper", "evaluated now and then"],
)
def test_what_shares_no_target(made: Callable[[nn.Module], nn.Module], every: int, tmp_path: Path) -> None:
    assert not shared(tmp_path, made, every=every)
