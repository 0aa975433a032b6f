"""What breaks tools that look at tensors: odd optimizers, odd parameters, parameters that change in mid-run.

Each is handled or named in a note, with every statistic on, and never ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import steadytrain
from parameters import telling
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.tensors.statistics import l2_norms
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.testing import Probe, assert_contract, assert_invisible

STEPS = 5

Change = Callable[[nn.Module, torch.optim.Optimizer], None]


class SignOfMean(torch.optim.Optimizer):
    """A family that nobody has seen: state under names of its own, some of it no tensors, some of other shapes."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"rate": 0.01, "schedule": [1, 2, 3]})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state.setdefault("history", []).append(float(parameter.grad.abs().mean()))
                drift = state.setdefault("drift", torch.zeros_like(parameter))
                state["rows"] = parameter.grad.flatten(1).sum(1) if parameter.dim() > 1 else None
                drift.lerp_(parameter.grad, 0.1)
                parameter -= group["rate"] * drift.sign()
        self.state["calls"] = self.state.get("calls", 0) + 1  # type: ignore[index]


class Closed(torch.optim.SGD):
    """Its state is no mapping of tensors at all, and its groups carry things."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, lr=0.01)
        self.param_groups[0]["owner"] = object()
        self.param_groups[0]["lr"] = torch.tensor(0.01)


class Odd(nn.Module):
    """Parameters of odd kinds, most of them frozen, beside a usual one that is trained."""

    def __init__(self, **odd: Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(4, 1)
        for name, tensor in odd.items():
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=tensor.requires_grad))

    def forward(self, x: Tensor) -> Tensor:
        total = self.head(x)
        for name, parameter in self.named_parameters(recurse=False):
            if parameter.requires_grad and name != "unused":
                total = total + parameter.abs().sum() * 0.1
        return total


class Words(nn.Module):
    """An embedding, its gradient sparse or not."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(12, 4, sparse=sparse), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.abs() * 10).long() % self.words.num_embeddings
        return self.head(self.words(ids).mean(1))


def sgd(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def adamw(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def leave(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Nothing changes."""


def grow(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """The vocabulary gets more rows, in the same parameter."""
    weight = model.words.weight
    weight.data, weight.grad = torch.cat([weight.data, torch.ones(3, 4)]), None
    model.words.num_embeddings += 3


def replace(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """The head is a new one, and the optimizer is told."""
    model.head = nn.Linear(4, 1)
    optimizer.param_groups[0]["params"] = list(model.parameters())


def widen(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Weights become float64 in the same parameters."""
    model.double()


def freeze(model: Any, optimizer: torch.optim.Optimizer) -> None:
    model.words.weight.requires_grad_(False)
    model.words.weight.grad = None


def move(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """The same parameter, now on another device."""
    torch.utils.swap_tensors(model.unused, nn.Parameter(model.unused.detach().to("meta")))


def move_to_a_new_one(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """``model.to(device)`` after the optimizer was made: the optimizer goes on with the old parameter."""
    model.unused = nn.Parameter(model.unused.detach().to("meta"))


def transpose(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """The same shape, laid out another way in memory."""
    weight = model.words.weight
    weight.data, weight.grad = weight.data.t().contiguous().t(), None


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer] = adamw
    change: Change = leave
    parameter: str = "head.weight"
    note: str = ""

    def __str__(self) -> str:
        return self.name

    def __call__(self, probe: Probe) -> Any:
        torch.manual_seed(0)
        model = self.model()
        optimizer = self.optimizer(model.parameters())
        losses = []
        for step in range(1, STEPS + 1):
            if step == 3:
                self.change(model, optimizer)
            loss = model(torch.randn(6, 4).to(model.head.weight.dtype)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.detach())
            del loss  # its graph holds on to the parameters as they were
            optimizer.step()
        return losses, model.head


def quantized() -> Tensor:
    return torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 0, torch.qint8)


CASES = [
    Case("unknown optimizer", lambda: Words(sparse=False), SignOfMean, note="SignOfMean"),
    Case("optimizer with things in its groups", lambda: Words(sparse=False), Closed),
    Case("sparse gradients", lambda: Words(sparse=True), sgd, note="sparse"),
    Case("sparse gradients under another fault", lambda: Words(sparse=True), sgd, parameter="words.weight"),
    Case("complex", lambda: Odd(wave=torch.randn(3, 4, dtype=torch.complex64, requires_grad=True))),
    Case(
        "complex, the fault", lambda: Odd(wave=torch.randn(3, dtype=torch.complex64).requires_grad_()), parameter="wave"
    ),
    Case("int8, frozen", lambda: Odd(packed=torch.ones(3, 4, dtype=torch.int8)), note="packed holds no plain"),
    Case("boolean, frozen", lambda: Odd(mask=torch.ones(3, 4, dtype=torch.bool)), note="mask holds no plain floats"),
    Case("float8, frozen", lambda: Odd(small=torch.randn(3, 4).to(torch.float8_e4m3fn))),
    Case("quantised, frozen", lambda: Odd(packed=quantized()), note="packed holds no plain floats"),
    Case(
        "on no device",
        lambda: Odd(later=torch.empty(3, 4, device="meta")),
        note="later holds no plain floats (torch.float32 on meta)",
    ),
    Case("empty", lambda: Odd(none=torch.empty(0, 4, requires_grad=True))),
    Case("one number", lambda: Odd(scale=torch.tensor(0.5, requires_grad=True)), parameter="scale"),
    Case("no gradient ever", lambda: Odd(unused=torch.ones(3, 4, requires_grad=True))),
    Case("bf16", lambda: Odd(low=torch.randn(3, 4, dtype=torch.bfloat16).requires_grad_()), parameter="low"),
    Case("grows", lambda: Words(sparse=False), sgd, grow),
    Case("grows, the fault", lambda: Words(sparse=False), sgd, grow, parameter="words.weight"),
    Case("is replaced", lambda: Words(sparse=False), sgd, replace),
    Case("becomes float64", lambda: Words(sparse=False), sgd, widen),
    Case("moves to another device", lambda: Odd(unused=torch.ones(3, 4, requires_grad=True)), change=move),
    Case(
        "is replaced by one on another device",
        lambda: Odd(unused=torch.ones(3, 4).requires_grad_()),
        sgd,
        move_to_a_new_one,
    ),
    Case("is frozen", lambda: Words(sparse=False), adamw, freeze),
    Case("is laid out another way", lambda: Words(sparse=False), sgd, transpose),
]


ALIKE = {
    *("sparse gradients", "complex", "boolean, frozen", "float8, frozen", "one number", "grows, the fault"),
    *("becomes float64", "is replaced by one on another device"),
}
"""Beside others that say the same: a fault under sparse or complex parameters, int8, bf16, what grows, what moves."""


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # it is on its way out
@pytest.mark.parametrize("case", telling(CASES, {str(case) for case in CASES} - ALIKE))
def test_a_fault_beside_what_is_odd(case: Case) -> None:
    recorded = assert_contract(case, step=4, parameter=case.parameter, level="full")
    assert recorded.streams["main"].steps.tolist() == list(range(1, STEPS + 1))
    notes = " ".join(recorded.facts["notes"])
    assert case.note in notes


def test_sparse_adam() -> None:
    """Two optimizers, as this optimizer makes it necessary."""

    def train(probe: Probe) -> Any:
        torch.manual_seed(0)
        model = Words(sparse=True)
        rows = torch.optim.SparseAdam(model.words.parameters(), lr=0.01)
        rest = torch.optim.AdamW(model.head.parameters(), lr=0.01)
        losses = []
        for _ in range(STEPS):
            loss = model(torch.randn(6, 4)).pow(2).mean()
            rows.zero_grad()
            rest.zero_grad()
            loss.backward()
            rows.step()
            rest.step()
            losses.append(loss.detach())
        return losses, model

    assert_contract(train, step=3, parameter="words.weight", level="full")


def test_something_that_is_no_torch_optimizer() -> None:
    """A class with a step of its own: it is not seen, it is told, and nothing breaks."""

    class Own:
        def __init__(self, parameters: Iterable[Tensor]) -> None:
            self.parameters = list(parameters)

        def step(self) -> None:
            for parameter in self.parameters:
                parameter.data -= 0.01 * parameter.grad

    def train(probe: Probe) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer, known = Own(model.parameters()), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        for _ in range(STEPS):
            model.zero_grad()
            model(torch.randn(6, 4)).pow(2).mean().backward()
            optimizer.step()
        known.step()  # so that there is a run to look at
        return model

    assert_invisible(train)


def test_a_model_that_moves_to_where_nothing_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be done there is said once each, and the training goes on."""
    monkeypatch.setattr(Guard, "reraise", False)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = sgd(model.parameters())
    turns = 0
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run", level="full"):
        for step in range(1, STEPS + 1):
            if step == 3:
                for parameter in model.parameters():
                    parameter.grad = None
                    torch.utils.swap_tensors(parameter, nn.Parameter(parameter.detach().to("meta")))
            model(torch.randn(6, 4, device=next(model.parameters()).device)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            turns += 1
    assert turns == STEPS
    told = capsys.readouterr().err.splitlines()
    assert any("0.weight holds no plain floats (torch.float32 on meta)" in line for line in told)
    assert all("training goes on without it" in line for line in told if "warning" in line)
    assert len(set(told)) == len(told)
    run = open_run(tmp_path / "run")
    assert run.scalars().steps.tolist()[:2] == [1, 2]
    assert run.ended == "finished"


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_a_bundle_names_what_it_could_not_keep(tmp_path: Path) -> None:
    model = Odd(packed=quantized(), later=torch.empty(3, 4, device="meta"), small=torch.ones(2).to(torch.float8_e4m3fn))
    optimizer = adamw(model.parameters())
    with steadytrain.watch(model, optimizer, policy="observe", runs_dir=tmp_path, name="run", level="full"):
        (model(torch.randn(6, 4)).mean() * float("nan")).backward()
        optimizer.step()
    run = open_run(tmp_path / "run")
    (path,) = run.incidents
    assert "without 2 that cannot be written (packed, later)" in open_bundle(path).incident.state_note
    assert set(load_file(path / "model.safetensors")) == {"head.weight", "head.bias", "small"}


def test_the_norm_of_eight_bit_floats() -> None:
    small = torch.linspace(-3, 3, 1000).to(torch.float8_e4m3fn)
    (norm,) = l2_norms([small])
    assert norm.item() == pytest.approx(small.double().square().sum().sqrt().item(), rel=1e-6)
