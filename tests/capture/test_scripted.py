"""TorchScript: scripted models are guarded, and a watched model can be scripted and saved while it trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from parameters import telling
from scripts import Ended, bare, call, finished, run_script, write_script
from steadytrain.capture.hooks.module_hooks import ModuleHook, hook_after, hook_before, nothing
from steadytrain.capture.hooks.scripting import hooks_hidden
from watching import stopping

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

BAD_STEP = 9


def report(place: str, error: Exception) -> None:
    raise error


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


class Holds(nn.Module):
    """A plain model around a scripted part."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(plain())
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.part(inputs))  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], Any]] = {
    "scripted": lambda: torch.jit.script(plain()),
    "traced": lambda: torch.jit.trace(plain(), torch.ones(16, 8)),
    "a scripted part": Holds,
}


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    moments = [value for one in optimizer.state.values() for value in one.values()]
    return [value.detach().clone() for value in (*model.state_dict().values(), *moments)]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, bad_step: int | None) -> list[Tensor]:
    """Returns the state before the bad step, or at the end."""
    draw = torch.Generator().manual_seed(1)
    for step in range(1, 13):
        inputs = torch.randn(16, 8, generator=draw)
        before = state(model, optimizer)
        if step == bad_step:
            inputs[0, 0] = float("nan")
            kept.extend(before)
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
    return state(model, optimizer)


kept: list[Tensor] = []


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    kept.clear()


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("name", telling(MODELS, ["scripted", "a scripted part"]))
def test_the_guard_stops_before_the_update_of_a_scripted_model(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with stopping(model, optimizer, tmp_path):
        train(model, optimizer, bad_step=BAD_STEP)
    assert kept
    assert same(state(model, optimizer), kept), "the state before the step was not restored"
    assert (tmp_path / "run" / "incidents" / f"step-{BAD_STEP:06d}").is_dir()


@pytest.mark.parametrize("name", telling(MODELS, ["traced", "a scripted part"]))
def test_a_healthy_scripted_model_trains_as_if_nobody_watched(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = MODELS[name]()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        if watched:
            with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
                ends.append(train(model, optimizer, bad_step=None))
        else:
            ends.append(train(model, optimizer, bad_step=None))
    assert same(*ends)
    assert "failed" not in capsys.readouterr().err


def test_hooks_are_hidden_from_scripting_and_come_back_in_their_places() -> None:
    model = plain()
    calls: list[str] = []
    model.register_forward_hook(lambda *_: calls.append("own, before ours"))
    hook_after(model, ModuleHook(lambda *_: calls.append("ours"), report))
    model.register_forward_hook(lambda *_: calls.append("own, after ours"))
    hook_before(model[0], ModuleHook(nothing, report), with_kwargs=True)
    with hooks_hidden(model):
        model(torch.ones(2, 8))
        model.register_forward_hook(lambda *_: calls.append("own, meanwhile"))
    model(torch.ones(2, 8))
    owns = ["own, before ours", "own, after ours"]
    assert calls == [*owns, owns[0], "ours", owns[1], "own, meanwhile"]
    assert len(model[0]._forward_pre_hooks) == 1


def test_a_hook_of_the_script_is_still_refused_by_torchscript(tmp_path: Path) -> None:
    """As without us: hooks that cannot be compiled make ``torch.jit.script`` fail."""
    model = plain()
    with steadytrain.watch(model, torch.optim.SGD(model.parameters(), 0.1), runs_dir=tmp_path, name="run"):
        model(torch.ones(2, 8))
        torch.jit.script(model)
        model.register_forward_hook(lambda *arguments: None)
        with pytest.raises(RuntimeError):
            torch.jit.script(model)


SCRIPTED_MEANWHILE = """
import io
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for step in range(24):
    inputs = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    if step in (3, 10, 20):
        scripted = torch.jit.script(model)
        file = io.BytesIO()
        torch.jit.save(scripted, file)
        file.seek(0)
        assert torch.equal(torch.jit.load(file)(inputs), model(inputs))
        print(step, len(str(scripted.graph)), len(file.getvalue()))
print(loss.item().hex())
"""

SCRIPTED_NAN = """
import torch
from torch import nn

torch.manual_seed(0)
model = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)))
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for step in range(30):
    inputs = torch.randn(16, 8)
    if step == 20:
        inputs[0, 0] = float("nan")
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
"""


def test_a_watched_model_is_scripted_while_it_trains(tmp_path: Path) -> None:
    watched = run_script(tmp_path, SCRIPTED_MEANWHILE)
    assert watched.status == 0, watched.err
    assert watched.out == finished(bare(write_script(tmp_path, SCRIPTED_MEANWHILE))).stdout


def test_an_incident_of_a_scripted_model_is_replayed_exactly(tmp_path: Path) -> None:
    stopped: Ended = run_script(tmp_path, SCRIPTED_NAN)
    assert stopped.status == 70, stopped.err
    assert "the batch already holds NaN" in stopped.err
    replayed = call("replay", next((stopped.run_dir / "incidents").iterdir()), folder=tmp_path)
    assert replayed.returncode == 1, replayed.stderr  # findings: the symptom came again
    assert "to the last bit" in replayed.stdout
