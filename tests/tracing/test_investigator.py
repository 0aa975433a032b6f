"""Doing the failing step again: each of the three ways is reached and right, and what does not repeat is said so."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402 (torch is optional for an install of steadytrain)

from scripts import run_script  # noqa: E402
from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.storage.bundle import open_bundle  # noqa: E402
from steadytrain.storage.run_folder import open_run  # noqa: E402
from steadytrain.tracing.investigator import LINES_RERUN, LOOP_RERUN, MODEL_RERUN, StepInvestigator  # noqa: E402
from steadytrain.tracing.tracer import NOT_REPRODUCED  # noqa: E402
from watching import stopping  # noqa: E402

BAD_STEP = 3
NAN = float("nan")


@pytest.fixture(autouse=True)
def _on_one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


class Net(nn.Module):
    """Returns its output, or with targets the loss as well: a weighted mean, 0 / 0 where all weights are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.head = nn.Linear(8, 1)

    def forward(self, inputs: Tensor, targets: Tensor | None = None, weights: Tensor | None = None) -> Any:
        output = self.head(self.body(inputs))
        if targets is None or weights is None:
            return output
        return {"logits": output, "loss": ((output - targets).pow(2) * weights).sum() / weights.sum()}


def finding_of(runs_dir: Path) -> Finding:
    (path,) = open_run(runs_dir / "run").incidents
    return open_bundle(path).finding


def made(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def draw(step: int) -> tuple[Tensor, Tensor, Tensor]:
    weights = torch.zeros(6, 1) if step == BAD_STEP else torch.rand(6, 1)
    return torch.randn(6, 4), torch.randn(6, 1), weights


# -- the three ways ----------------------------------------------------------------------------------------------------


def test_the_model_alone_where_it_returns_its_loss(tmp_path: Path) -> None:
    model = Net()
    optimizer = made(model)
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            inputs, targets, weights = draw(step)
            loss = model(inputs, targets=targets, weights=weights)["loss"] / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    located = finding_of(tmp_path).located
    assert located is not None
    assert located.method == MODEL_RERUN
    assert (located.phase, located.module, located.operation) == ("forward", "", "aten.div.Tensor")
    assert [(operand.name, operand.zeros) for operand in located.inputs][1][1] == 1


def test_the_lines_where_the_loss_is_made_in_the_loop(tmp_path: Path) -> None:
    model = Net()
    optimizer = made(model)
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            inputs = torch.randn(6, 4)
            output = model(inputs)
            spread = (output - output.detach()).pow(2).sum() if step == BAD_STEP else output.var()
            loss = spread.sqrt()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    located = finding_of(tmp_path).located
    assert located is not None
    assert located.method == LINES_RERUN
    assert (located.phase, located.operation) == ("backward", "aten.div.Tensor")
    assert located.code is not None
    assert located.code.startswith("loss = spread.sqrt()")


def test_lines_that_make_another_model_tell_nothing_of_this_one(tmp_path: Path) -> None:
    inputs = torch.randn(6, 4)

    def train() -> None:
        scale = torch.zeros(1)
        model = Net()
        optimizer = made(model)
        with stopping(model, optimizer, tmp_path):
            output = model(inputs)
            scale = scale / scale
            (output * scale).sum().backward()
            optimizer.step()

    train()
    assert finding_of(tmp_path).located is None


def test_a_lap_where_the_function_is_over(tmp_path: Path) -> None:
    model = Net()
    optimizer = made(model)
    batches = torch.utils.data.DataLoader([(torch.full((4,), float(n)), n) for n in range(60)], batch_size=6)

    def train_step(inputs: Tensor, numbers: Tensor) -> None:
        output = model(inputs)
        distance = output - output.detach() if 12 in numbers else output
        distance.pow(2).sum().sqrt().backward()

    steps = 0
    with stopping(model, optimizer, tmp_path):
        for inputs, numbers in batches:
            steps += 1
            optimizer.zero_grad()
            train_step(inputs, numbers)
            optimizer.step()
    located = finding_of(tmp_path).located
    assert steps == BAD_STEP + 1
    assert located is not None
    assert located.method == LOOP_RERUN
    assert (located.phase, located.operation) == ("backward", "aten.div.Tensor")


# -- what does not repeat ----------------------------------------------------------------------------------------------


class Once:
    """0, but NaN the third time it is asked: a race, or a broken chip."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return NAN if self.asked == BAD_STEP else 0.0


class Shifted(nn.Module):
    def __init__(self, shift: Once) -> None:
        super().__init__()
        self.inner = Net()
        self.shift = shift

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs).pow(2).mean() + self.shift()


def test_a_fault_in_the_model_that_does_not_repeat_is_said_not_to(tmp_path: Path) -> None:
    model = Shifted(Once())
    optimizer = made(model)
    with stopping(model, optimizer, tmp_path):
        for _ in range(8):
            optimizer.zero_grad()
            loss = model(torch.randn(6, 4))
            loss.backward()
            optimizer.step()
    finding = finding_of(tmp_path)
    assert finding.located is None
    assert finding.why.startswith(NOT_REPRODUCED)


def test_a_fault_in_the_loss_that_does_not_repeat_is_said_not_to(tmp_path: Path) -> None:
    model, shift = Net(), Once()
    optimizer = made(model)
    with stopping(model, optimizer, tmp_path):
        for _ in range(8):
            optimizer.zero_grad()
            loss = model(torch.randn(6, 4)).mean() + shift()
            loss.backward()
            optimizer.step()
    finding = finding_of(tmp_path)
    assert finding.located is None
    assert finding.why.startswith(NOT_REPRODUCED)


def test_a_fault_in_a_gradient_that_does_not_repeat_is_said_not_to(tmp_path: Path) -> None:
    model, shift = Net(), Once()
    optimizer = made(model)

    def train_step() -> None:  # over at the gate: only a lap can do it again
        loss = model(torch.randn(6, 4)).mean()
        loss.register_hook(lambda gradient: gradient + shift())
        loss.backward()

    with stopping(model, optimizer, tmp_path):
        for _ in range(8):
            optimizer.zero_grad()
            train_step()
            optimizer.step()
    finding = finding_of(tmp_path)
    assert finding.located is None
    assert finding.why.startswith(NOT_REPRODUCED)


def test_a_fault_of_the_clock_is_said_not_to_repeat(tmp_path: Path) -> None:
    model = Net()
    optimizer = made(model)
    clock, deadline = itertools.count(1), -1.0  # it goes on by one at each look
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            if step == BAD_STEP:
                deadline = step + 0.5  # after this look, and before the next one
            loss = (model(torch.randn(6, 4)).mean() * 0 + (next(clock) - deadline)).log()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    finding = finding_of(tmp_path)
    assert finding.located is None
    assert finding.why.startswith(NOT_REPRODUCED)


# -- nothing is touched ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["model", "lines"])
@pytest.mark.parametrize("moment", ["look_at_loss", "investigate"])
def test_the_re_run_touches_nothing(way: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    compared: list[bool] = []

    def everything() -> list[Any]:
        tensors = [*model.parameters(), *model.buffers()]
        gradients = [None if p.grad is None else p.grad.numpy().tobytes() for p in model.parameters()]
        moments = [value for state in optimizer.state.values() for value in state.values()]
        return [
            [tensor.detach().numpy().tobytes() for tensor in [*tensors, *moments]],
            [tensor._version for tensor in tensors],
            gradients,
            [id(parameter.grad) for parameter in model.parameters()],
            torch.get_rng_state().numpy().tobytes(),
        ]

    look = getattr(StepInvestigator, moment)

    def watched_look(self: Any, incident_context: Any) -> Any:
        before = everything()
        found = look(self, incident_context)
        compared.append(before == everything())
        return found

    monkeypatch.setattr(StepInvestigator, moment, watched_look)
    if moment == "investigate":
        monkeypatch.setattr(StepInvestigator, "look_at_loss", lambda self, incident_context: None)
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            inputs, targets, weights = draw(step)
            if way == "model":
                loss = model(inputs, targets, weights)["loss"]
            else:
                loss = ((model(inputs) - targets).pow(2) * weights).sum() / weights.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert compared == [True]
    assert finding_of(tmp_path).located is not None


# -- the lap does not come round ---------------------------------------------------------------------------------------

LAP = """
import itertools
import time
import torch
from torch import nn
import steadytrain.capture.step.lap

steadytrain.capture.step.lap.LOOP_RERUN_S_MAX = {limit_s}
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train_step(step):
    output = model(torch.randn(5, 4))
    (output.mean() + (output * 0).pow(2).sum().sqrt() if step == 3 else output.mean()).backward()

for step in range(1, 9):
    if step == 4:
        {instead}
    optimizer.zero_grad()
    train_step(step)
    optimizer.step()
"""

ENDINGS = {
    "ends": ("break", "the script ended before it reached the optimizer again"),
    "leaves": ("raise SystemExit(3)", "the script failed before it reached the optimizer again"),
    "raises": ("raise ValueError('oh')", "the script failed before it reached the optimizer again"),
    "is interrupted": ("raise KeyboardInterrupt", "the script interrupted before"),
    "hangs": ("while True: time.sleep(0.01)", "the script did not reach the optimizer again within 1 s"),
    "hangs and swallows": (
        "\n        try:\n            while True: time.sleep(0.01)\n        except BaseException: break",
        "the script did not reach the optimizer again within 1 s",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lap_that_does_not_come_round_is_given_up(ending: str, tmp_path: Path) -> None:
    instead, why = ENDINGS[ending]
    outcome = run_script(tmp_path, LAP.format(instead=instead, limit_s=1.0 if "hangs" in ending else 60.0))
    assert outcome.status == 70, outcome.err
    assert outcome.err.count("STOPPED before the update of step 3") == 1
    assert outcome.run.ended == "stopped"
    assert outcome.run.facts["exit_status"] == 70
    assert why in finding_of(outcome.run_dir.parent).why
    assert json.loads((outcome.run.incidents[0] / "incident.json").read_text())["located"] is None
