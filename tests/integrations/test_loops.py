"""Raw loops of every kind, each through the contract that users can hold their own loops to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from parameters import telling
from steadytrain.testing import (
    Probe,
    assert_contract,
    assert_fails_open,
    assert_fault_is_caught,
    assert_hooks_gone,
    assert_invisible,
    assert_skip_is_recorded,
    by_itself,
    zero_code,
)
from steadytrain.testing.loop_contract import Attach

STEPS = 5


class Residual(nn.Module):
    """In-place activations and an in-place residual, batch normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.relu, self.dropout = nn.ReLU(inplace=True), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.dropout(self.relu(self.norm(self.up(x)))))
        y += x
        return y.mul_(0.9)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), Residual(), Residual(), nn.Linear(8, 1))


@dataclass(frozen=True)
class Plain:
    """The usual loop: ``call`` makes what is called out of the model, ``optimizer`` what steps it."""

    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
    call: Callable[[nn.Module], Callable[[Tensor], Tensor]] = lambda model: model
    model: Callable[[], nn.Module] = net
    micro_batches: int = 1
    limit: float | None = 1.0

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        model = self.model()
        call = self.call(model)
        optimizer = self.optimizer(model.parameters())
        losses = []
        for _ in range(STEPS):
            for _ in range(self.micro_batches):
                loss = call(torch.randn(6, 8)).pow(2).mean()
                (loss / self.micro_batches).backward()
                losses.append(loss.detach())
            if self.limit is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self.limit)
            optimizer.step()
            optimizer.zero_grad()
        return losses, model


@dataclass(frozen=True)
class Attached:
    """The usual loop in which everything is made, and compiled, before it asks to be watched."""

    call: Callable[[nn.Module], Callable[[Tensor], Tensor]]

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        model = net()
        call = self.call(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        call(torch.randn(6, 8)).sum().backward()
        losses = []
        with probe.watch(model, optimizer):
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = call(torch.randn(6, 8)).pow(2).mean()
                loss.backward()
                losses.append(loss.detach())
                optimizer.step()
        return losses, model


@dataclass(frozen=True)
class Mixed:
    """Autocast, and a gradient scaler if the dtype needs one."""

    dtype: torch.dtype
    scaled: bool = False
    fused: bool = False

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=self.fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=self.scaled)
        losses = []
        for _ in range(STEPS):
            with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
                loss = model(torch.randn(6, 8)).float().pow(2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return losses, model


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="aot_eager")


def compiled_by_inductor(model: nn.Module) -> Any:
    return torch.compile(model)


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="aot_eager")
    return model


def blocks_compiled(model: nn.Module) -> nn.Module:
    for block in (model[1], model[2]):
        block.compile(backend="aot_eager")
    return model


def lbfgs(probe: Probe) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    losses = []
    for _ in range(STEPS):
        batch = torch.randn(6, 8)

        def closure(batch: Tensor = batch) -> Tensor:
            optimizer.zero_grad()
            loss = (model(batch) - 1).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
            return loss

        optimizer.step(closure)
    return losses, model


class Forger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8))

    def forward(self, noise: Tensor) -> Tensor:
        return self.make(noise)


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.judge = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))

    def forward(self, picture: Tensor) -> Tensor:
        return self.judge(picture)


def gan(probe: Probe) -> Any:
    """Two optimizers take turns; the critic's gradients of the forger's backward are thrown away."""
    torch.manual_seed(0)
    forger, critic = Forger(), Critic()
    forges = torch.optim.Adam(forger.parameters(), lr=0.01, betas=(0.5, 0.9))
    judges = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9))
    losses = []
    for _ in range(STEPS):
        real, noise = torch.randn(6, 8), torch.randn(6, 4)
        judges.zero_grad()
        loss = functional.softplus(-critic(real)).mean() + functional.softplus(critic(forger(noise).detach())).mean()
        loss.backward()
        judges.step()
        losses.append(loss.detach())
        forges.zero_grad()
        loss = functional.softplus(-critic(forger(noise))).mean()
        loss.backward()
        forges.step()
        losses.append(loss.detach())
    return losses, forger, critic


@dataclass(frozen=True)
class TwoOptimizers:
    """Matrices go to one, the rest to the other, after the same backward; the second begins in step ``second_from``."""

    second_from: int = 1

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        model = net()
        matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
        others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
        first, second = torch.optim.SGD(matrices, lr=0.01, momentum=0.9), torch.optim.AdamW(others, lr=0.01)
        losses = []
        for step in range(1, STEPS + 1):
            model.zero_grad()
            loss = model(torch.randn(6, 8)).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
            probe.planted(step, model[1].up.bias.grad)
            first.step()
            if step >= self.second_from:
                second.step()
        return losses, model


@dataclass(frozen=True)
class Way:
    name: str
    train: Callable[[Probe], Any]
    parameter: str
    step: int = 3
    attach: Attach = zero_code
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


FULL: dict[str, Any] = {"level": "full"}
"""Every statistic in every step (``conftest``)."""

WAYS = [
    Way("plain", Plain(), "1.up.weight"),
    Way("the first step", Plain(), "1.up.weight", step=1),
    Way("every statistic in every step", Plain(), "1.up.weight", options=FULL),
    Way("accumulation", Plain(micro_batches=3), "1.up.weight"),
    Way("without clipping", Plain(limit=None), "3.bias"),
    Way("bf16 autocast", Mixed(torch.bfloat16), "2.down.weight"),
    Way("bf16 autocast, every statistic", Mixed(torch.bfloat16), "2.down.weight", options=FULL),
    Way("checkpoint", Plain(model=Checkpointed), "blocks.0.0.weight"),
    Way("checkpoint, reentrant", Plain(model=lambda: Checkpointed(reentrant=True)), "blocks.0.0.weight"),
    Way("checkpoint, every statistic", Plain(model=Checkpointed), "blocks.0.0.weight", options=FULL),
    Way("compiled model", Plain(call=compiled), "1.up.weight"),
    Way("compiled by inductor, every statistic", Plain(call=compiled_by_inductor), "1.up.weight", options=FULL),
    Way("model.compile()", Plain(call=compiled_in_place), "1.up.weight"),
    Way("compiled blocks", Plain(call=blocks_compiled), "1.up.weight"),
    Way("compiled model, every statistic", Plain(call=compiled), "1.up.weight", options=FULL),
    Way("compiled blocks, every statistic", Plain(call=blocks_compiled), "1.up.weight", options=FULL),
    Way("LBFGS", lbfgs, "2.bias"),
    Way("GAN, the one", gan, "judge.0.weight"),
    Way("GAN, the other", gan, "make.0.weight"),
    Way("GAN, every statistic", gan, "make.0.weight", options=FULL),
    Way("model compiled before attaching", Attached(compiled), "1.up.weight", attach=by_itself),
    Way("model.compile() before attaching", Attached(compiled_in_place), "1.up.weight", attach=by_itself),
    Way(
        "model.compile() before attaching, every statistic",
        Attached(compiled_in_place),
        "1.up.weight",
        attach=by_itself,
        options=FULL,
    ),
    Way("two optimizers, the first", TwoOptimizers(), "1.up.weight"),
    Way("two optimizers, the second", TwoOptimizers(), "1.up.bias"),
    Way("two optimizers, the second, in the first step", TwoOptimizers(), "1.up.bias", step=1),
    Way("two optimizers, the second begins late", TwoOptimizers(second_from=3), "1.up.weight", step=4),
    Way("two optimizers, the second begins badly", TwoOptimizers(second_from=3), "1.up.bias", step=1),
]
# Of each kind of loop one, in its harder form.
TELLING = {
    *("the first step", "accumulation", "without clipping", "bf16 autocast, every statistic", "checkpoint, reentrant"),
    *("compiled by inductor, every statistic", "LBFGS", "GAN, the other"),
    "two optimizers, the second begins badly",
}
SCALED = [
    Way("scaler", Mixed(torch.float32, scaled=True), "1.up.weight"),
    Way("scaler, fused", Mixed(torch.float32, scaled=True, fused=True), "1.up.weight"),
    Way("fp16 autocast", Mixed(torch.float16, scaled=True), "1.up.weight"),
]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the compiler's own, as the next
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:torch")
@pytest.mark.parametrize("way", telling(WAYS, TELLING))
def test_a_way_of_training(way: Way) -> None:
    recorded = assert_contract(way.train, step=way.step, parameter=way.parameter, attach=way.attach, **way.options)
    for window in recorded.streams.values():
        assert window.steps.tolist() == list(range(1, STEPS + 1))
        assert window.present["loss"].all()


def test_every_step_sent_to_another_tool() -> None:
    """An exporter keeps the contract too, and has written by the end of each run, also of one that was stopped."""
    written = []

    @contextmanager
    def attach(options: Mapping[str, Any]) -> Iterator[None]:
        try:
            with zero_code(options):
                yield
        finally:
            written.append(any(Path(options["runs_dir"]).rglob("events.out.tfevents.*")))

    pytest.importorskip("tensorboard")
    assert_contract(Plain(), step=3, parameter="1.up.weight", attach=attach, to=("tensorboard",), **FULL)
    assert written[:3] == [True] * 3  # a healthy run, one observed, one stopped; the last has errors of ours planted


def test_an_optimizer_that_begins_late_belongs_to_the_steps_of_the_first() -> None:
    assert_fault_is_caught(TwoOptimizers(second_from=3), step=4)


@pytest.mark.parametrize("way", telling(SCALED, ["fp16 autocast"]))
def test_a_way_whose_scaler_skips_bad_steps(way: Way) -> None:
    assert_invisible(way.train)
    assert_skip_is_recorded(way.train, step=way.step, parameter=way.parameter)
    assert_hooks_gone(way.train)
    assert_fails_open(way.train)
