"""When outputs are measured, and that the script's own numbers stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from activation_models import Attending, leftovers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fingerprint import Training, seed
from measuring import cell, measure, untold
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.activations import Activations
from steadytrain.capture.tensors.activations.measurement import CALLS_MAX


class InPlace(nn.Module):
    """What a module puts out is overwritten right after; the numbers are those of before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.first(x))
        y = self.first(h)
        y += h
        return self.second(y.mul_(0.5))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.GELU())
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.block, x.requires_grad_(), use_reentrant=self.reentrant))


class OwnSteps(nn.Module):
    """Never called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def step(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).relu())


class Marked(Tensor):
    """A subclass of the script's that counts what is done with it."""

    seen = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Marked.seen += 1
        return super().__torch_function__(function, types, args, kwargs or {})


class Sharing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.same = self.one
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.norm(self.same(self.one(x)))
        return {"hidden": [hidden], "prediction": self.head(hidden)}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor], Tensor]]] = {
    "in place": (InPlace, lambda model, x: model(x)),
    "checkpointed": (lambda: Checkpointed(reentrant=False), lambda model, x: model(x)),
    "checkpointed, reentrant": (lambda: Checkpointed(reentrant=True), lambda model, x: model(x)),
    "attending": (Attending, lambda model, x: model(x)),
    "own steps": (OwnSteps, lambda model, x: model.step(x)),
    "subclass": (lambda: nn.Linear(8, 1), lambda model, x: model(x.as_subclass(Marked))),
    "sharing": (Sharing, lambda model, x: model(x)["prediction"]),
    "data parallel": (lambda: nn.DataParallel(Sharing()), lambda model, x: model(x)["prediction"]),
    "autocast": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 1)),
        lambda model, x: half(model, x),
    ),
}


def half(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(x).float()


def diary(name: str, *, measured: bool) -> list[str]:
    seed(1)
    Marked.seen = 0
    build, call = MODELS[name]
    model = build()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    training = Training()
    training.owns(model, optimizer)
    activations = Activations(Guard(untold))
    for step in training.steps():
        if measured and step % 2 == 0:
            activations.arm([model], histograms=step == 2)
        optimizer.zero_grad()
        with torch.no_grad():
            call(model, training.batch(step, 6, 8))
        loss = call(model, training.batch(step, 6, 8)).pow(2).mean()
        if measured:
            activations.backward_begins()
        loss.backward()
        training.went_back(step, loss)
        optimizer.step()
        training.updated(step)
        readback = activations.take()
        assert (readback is not None) == (measured and step % 2 == 0)
        assert readback is None or len(readback.result().modules.rows) > 0
    activations.remove()
    return [*training.lines, str(Marked.seen)]


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_the_same_to_the_last_bit(name: str) -> None:
    assert diary(name, measured=True) == diary(name, measured=False)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_parts_count_once_and_evaluations_not_at_all(reentrant: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    activations = Activations(Guard(untold))
    activations.arm([model])
    with torch.no_grad():
        model(torch.full((2, 8), float("nan")))
    model(torch.randn(2, 8)).sum().backward()  # nobody says when backward begins: what it recomputes is left out
    model.eval()
    readback = activations.take()
    assert readback is not None
    reading = readback.result().modules
    assert reading.rows == ("", "block", "block.0", "block.1", "block.2", "head")
    assert (reading.values[:, reading.columns.index("nonfinite")] == 0).all()


def test_the_first_micro_batch_of_a_step_is_measured() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    activations = Activations(Guard(untold))
    activations.arm([model])
    for value in (2.0, 7.0):
        loss = model(torch.tensor([value]))
        activations.backward_begins()
        loss.backward()
    readback = activations.take()
    assert readback is not None
    assert cell(readback.result().modules, "", "abs_max") == 2.0


def test_an_output_is_read_before_it_is_overwritten() -> None:
    class Overwritten(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2, bias=False)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.first(x)).mul_(10.0)

    model = Overwritten()
    model.first.weight.data.copy_(torch.tensor([[-3.0, 0.0], [0.0, 2.0]]))
    reading = measure(model, lambda: model(torch.ones(1, 2))).modules
    assert [cell(reading, row, "abs_max") for row in ("first", "relu", "")] == [3.0, 2.0, 20.0]


def test_rows_are_those_of_the_model_whatever_wraps_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 1)))
    plain = measure(model, lambda: model(torch.ones(1, 2))).modules
    wrapped = nn.DataParallel(model)
    assert measure(wrapped, lambda: wrapped(torch.ones(1, 2))).modules.rows == plain.rows
    assert plain.rows == ("", "0", "1", "1.0", "1.1")


def test_rows_of_several_models_are_told_apart() -> None:
    class Generator(nn.Linear):
        pass

    class Critic(nn.Sequential):
        pass

    generator, critic = Generator(2, 2), Critic(nn.Linear(2, 1))
    activations = Activations(Guard(untold))
    activations.arm([generator, critic])
    critic(generator(torch.ones(1, 2)))
    readback = activations.take()
    assert readback is not None
    assert readback.result().modules.rows == ("Generator", "Critic", "Critic.0")


def test_nothing_is_there_when_nothing_was_called() -> None:
    model = nn.Linear(1, 1)
    activations = Activations(Guard(untold))
    assert activations.take() is None
    activations.arm([model])
    with torch.no_grad():
        model(torch.ones(1))
    assert activations.armed
    assert activations.take() is None
    assert not activations.armed
    assert leftovers(model) == []


def test_a_rollout_of_many_calls_carries_hooks_only_in_the_calls_that_are_measured() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    activations = Activations(Guard(untold))
    activations.arm([model])
    hooked = []
    for _ in range(20):
        output = model(torch.randn(2, 4))
        hooked.append(any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()))
    assert activations.armed
    output.sum().backward()
    activations.backward_begins()
    readback = activations.take()
    assert readback is not None
    assert readback.result().modules.rows == ("", "0", "1", "1.0", "1.1")
    assert hooked == [True] * (CALLS_MAX - 1) + [False] * (20 - CALLS_MAX + 1)
